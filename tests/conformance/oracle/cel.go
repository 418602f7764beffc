package main

import (
	"context"
	"fmt"
	"math"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

type celDevice struct {
	Driver                   string                                                    `json:"driver"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
}

type celQuestion struct {
	ID   string `json:"id"`
	Expr string `json:"expr"`
	// Device is the one device; Devices asks about several with one compilation.
	Device  *celDevice  `json:"device"`
	Devices []celDevice `json:"devices"`
	// Derived asks for the value of a derived attribute in place of a verdict.
	Derived bool `json:"derived"`
	// Admission also asks the environment for new expressions, at default gates.
	Admission bool `json:"askAdmission"`
}

type celVerdict struct {
	Result  string                       `json:"result"`
	Message string                       `json:"message,omitempty"`
	Cost    *uint64                      `json:"cost,omitempty"`
	Value   *resourceapi.DeviceAttribute `json:"value,omitempty"`
}

type celAnswer struct {
	ID string `json:"id"`
	celVerdict
	Verdicts      []celVerdict `json:"verdicts,omitempty"`
	MaxCost       *uint64      `json:"maxCost,omitempty"`
	Admission     string       `json:"admission,omitempty"`
	AdmissionCost uint64       `json:"admissionCost,omitempty"`
	Version       string       `json:"version"`
}

func answerCEL(line []byte) (reply any) {
	var question celQuestion
	answer := celAnswer{Version: upstreamVersion}
	// Some expressions crash upstream's compiler, with values that cannot be keys of a map.
	defer func() {
		if recovered := recover(); recovered != nil {
			answer.celVerdict = celVerdict{Result: "panic", Message: fmt.Sprint(recovered)}
			reply = answer
		}
	}()
	if err := json.Unmarshal(line, &question); err != nil {
		answer.celVerdict = celVerdict{Result: "bad_question", Message: err.Error()}
		return answer
	}
	answer.ID = question.ID
	compiled := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).
		CompileCELExpression(question.Expr, cel.Options{DerivedAttribute: question.Derived})
	if compiled.MaxCost != math.MaxUint64 {
		answer.MaxCost = &compiled.MaxCost
	}
	if question.Admission {
		answer.Admission, answer.AdmissionCost = admission(question.Expr, question.Derived)
	}
	if question.Device != nil {
		answer.celVerdict = verdict(&compiled, question.Device, question.Derived)
	}
	for i := range question.Devices {
		answer.Verdicts = append(answer.Verdicts, verdict(&compiled, &question.Devices[i], question.Derived))
	}
	return answer
}

func verdict(compiled *cel.CompilationResult, device *celDevice, derived bool) (result celVerdict) {
	if compiled.Error != nil {
		return celVerdict{Result: "compile_error", Message: compiled.Error.Detail}
	}
	defer func() {
		if recovered := recover(); recovered != nil {
			result = celVerdict{Result: "runtime_error", Message: fmt.Sprint("panic: ", recovered)}
		}
	}()
	input := cel.Device{
		Driver:                   device.Driver,
		AllowMultipleAllocations: device.AllowMultipleAllocations,
		Attributes:               device.Attributes,
		Capacity:                 device.Capacity,
	}
	if derived {
		value, details, err := compiled.EvaluateDerivedAttribute(context.Background(), input)
		if details != nil {
			result.Cost = details.ActualCost()
		}
		if err != nil {
			result.Result, result.Message = "runtime_error", err.Error()
			return result
		}
		result.Result, result.Value = "value", value
		return result
	}
	matches, details, err := compiled.DeviceMatches(context.Background(), input)
	if details != nil {
		result.Cost = details.ActualCost()
	}
	switch {
	case err != nil:
		result.Result, result.Message = "runtime_error", err.Error()
	case matches:
		result.Result = "true"
	default:
		result.Result = "false"
	}
	return result
}

// admission is what an API server of this release at default gates says to a new expression.
// The cost is the estimate for the worst case, 0 for an expression that does not compile.
func admission(expression string, derived bool) (string, uint64) {
	if len(expression) > resourceapi.CELSelectorExpressionMaxLength {
		return "too_long", 0
	}
	envType := environment.NewExpressions
	compiled := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}).
		CompileCELExpression(expression, cel.Options{EnvType: &envType, DerivedAttribute: derived})
	switch {
	case compiled.Error != nil:
		return "compile_error", 0
	case compiled.MaxCost > resourceapi.CELSelectorExpressionMaxCost:
		return "too_expensive", compiled.MaxCost
	}
	return "ok", compiled.MaxCost
}
