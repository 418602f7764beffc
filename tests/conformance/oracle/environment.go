package main

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"

	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

type celOverload struct {
	ID     string   `json:"id"`
	Member bool     `json:"member"`
	Args   []string `json:"args"`
	Result string   `json:"result"`
}

// celEnvironment is everything that an expression may use.
type celEnvironment struct {
	Functions map[string][]celOverload `json:"functions"`
	Macros    []string                 `json:"macros"`
	Variables []string                 `json:"variables"`
}

// writeEnvironment lists what the environment for stored expressions declares.
func writeEnvironment(out io.Writer) error {
	envType := environment.StoredExpressions
	env := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).
		CompileCELExpression("true", cel.Options{EnvType: &envType}).Environment
	listed := celEnvironment{Functions: map[string][]celOverload{}}
	for name, function := range env.Functions() {
		for _, overload := range function.OverloadDecls() {
			listed.Functions[name] = append(listed.Functions[name], celOverload{
				ID:     overload.ID(),
				Member: overload.IsMemberFunction(),
				Args:   typeNames(overload.ArgTypes()),
				Result: overload.ResultType().String(),
			})
		}
	}
	for _, macro := range env.Macros() {
		listed.Macros = append(listed.Macros, macro.MacroKey())
	}
	for _, variable := range env.Variables() {
		listed.Variables = append(listed.Variables, variable.Name()+" "+variable.Type().String())
	}
	slices.Sort(listed.Macros)
	slices.SortFunc(listed.Variables, cmp.Compare)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(listed)
}

func typeNames(of []*types.Type) []string {
	names := make([]string, 0, len(of))
	for _, each := range of {
		names = append(names, each.String())
	}
	return names
}
