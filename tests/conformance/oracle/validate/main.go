// Command validate answers with what the API server says about creating or updating an object of
// resource.k8s.io: JSON lines in, one JSON line out for each.
//
//	validate [gate=true|false ...]
//
// Question: {"id", "object", "old"?, "subresource"?: "status", "adminNamespace"?: bool}. The object is
// decoded strictly, defaulted and converted like a request's body, then goes through the registry's
// create (or, with "old", update) path.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/devicetaintrule"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
)

const upstreamVersion = "v1.37.2"

type question struct {
	ID             string          `json:"id"`
	Object         json.RawMessage `json:"object"`
	Old            json.RawMessage `json:"old"`
	Subresource    string          `json:"subresource"`
	AdminNamespace bool            `json:"adminNamespace"`
}

type cause struct {
	Type    string `json:"type"`
	Field   string `json:"field"`
	Message string `json:"message"`
}

type answer struct {
	ID       string   `json:"id"`
	Result   string   `json:"result"`
	Message  string   `json:"message,omitempty"`
	Causes   []cause  `json:"causes,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	Version  string   `json:"version"`
}

// strategy is what the five kinds have in common.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

func main() {
	gates := map[string]bool{}
	// A stock 1.37 binary has the minimum compatibility version 1.36, which keeps this one off.
	gates["DRAFractionalCapacityRange"] = false
	for _, argument := range os.Args[1:] {
		name, text, _ := strings.Cut(argument, "=")
		value, err := strconv.ParseBool(text)
		if err != nil {
			fmt.Fprintf(os.Stderr, "validate: want gate=true|false, got %q\n", argument)
			os.Exit(2)
		}
		gates[name] = value
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		fmt.Fprintln(os.Stderr, "validate:", err)
		os.Exit(2)
	}
	// What upstream logs about its own two ways to validate is no part of an answer.
	klog.SetLogger(logr.Discard())
	reader := bufio.NewReaderSize(os.Stdin, 1<<20)
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 1 {
			if encodeErr := encoder.Encode(respond(line)); encodeErr != nil {
				fmt.Fprintln(os.Stderr, "validate:", encodeErr)
				os.Exit(1)
			}
		}
		if err != nil {
			return
		}
	}
}

func respond(line []byte) (reply answer) {
	var asked question
	reply.Version = upstreamVersion
	if err := json.Unmarshal(line, &asked); err != nil {
		reply.Result, reply.Message = "bad_question", err.Error()
		return reply
	}
	reply.ID = asked.ID
	defer func() {
		if recovered := recover(); recovered != nil {
			reply.Result, reply.Message = "panic", fmt.Sprint(recovered)
		}
	}()
	object, version, err := decode(asked.Object)
	if err != nil {
		reply.Result, reply.Message = "decode_error", err.Error()
		return reply
	}
	rules, err := strategyFor(object, asked)
	if err != nil {
		reply.Result, reply.Message = "bad_question", err.Error()
		return reply
	}
	warnings := &recorder{}
	ctx := warning.WithWarningRecorder(requestContext(object, version, rules, asked.Subresource), warnings)
	if asked.Old == nil {
		err = rest.BeforeCreate(rules, ctx, systemFields(object))
	} else {
		var old runtime.Object
		if old, _, err = decode(asked.Old); err == nil {
			err = rest.BeforeUpdate(rules, ctx, object, old)
		}
	}
	reply.Warnings = warnings.texts
	if err == nil {
		reply.Result = "valid"
		return reply
	}
	reply.Result, reply.Message = "invalid", err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, found := range status.Status().Details.Causes {
			reply.Causes = append(reply.Causes, cause{string(found.Type), found.Field, found.Message})
		}
	}
	return reply
}

// decode reads an object as a request's body is read with fieldValidation=Strict, defaults included.
func decode(raw []byte) (object runtime.Object, version string, err error) {
	codecs := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	object, kind, err := codecs.UniversalDecoder(resource.SchemeGroupVersion).Decode(raw, nil, nil)
	if kind != nil {
		version = kind.Version
	}
	return object, version, err
}

// systemFields fills what the API server fills before it validates.
func systemFields(object runtime.Object) runtime.Object {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return object
	}
	rest.FillObjectMetaSystemFields(accessor)
	return object
}

// requestContext holds what the registry reads of a request: its namespace, version and resource.
func requestContext(object runtime.Object, version string, rules strategy, subresource string) context.Context {
	namespace := metav1.NamespaceNone
	if rules.NamespaceScoped() {
		namespace = "default"
		if accessor, err := meta.Accessor(object); err == nil && accessor.GetNamespace() != "" {
			namespace = accessor.GetNamespace()
		}
	}
	ctx := genericapirequest.WithNamespace(genericapirequest.NewContext(), namespace)
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true,
		APIGroup:          resource.GroupName,
		APIVersion:        version,
		Namespace:         namespace,
		Subresource:       subresource,
	})
}

func strategyFor(object runtime.Object, asked question) (strategy, error) {
	namespaces := &oneNamespace{admin: asked.AdminNamespace}
	switch object.(type) {
	case *resource.ResourceSlice:
		return resourceslice.Strategy, nil
	case *resource.DeviceClass:
		return deviceclass.Strategy, nil
	case *resource.DeviceTaintRule:
		return devicetaintrule.Strategy, nil
	case *resource.ResourceClaimTemplate:
		return resourceclaimtemplate.NewStrategy(namespaces), nil
	case *resource.ResourceClaim:
		claims := resourceclaim.NewStrategy(namespaces, allowAll{})
		if asked.Subresource == "status" {
			return resourceclaim.NewStatusStrategy(claims), nil
		}
		return claims, nil
	}
	return nil, fmt.Errorf("no validation for %T", object)
}

// oneNamespace is the namespace client of a cluster where every namespace exists and either carries
// the admin-access label or does not.
type oneNamespace struct {
	clientcorev1.NamespaceInterface
	admin bool
}

func (n *oneNamespace) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if n.admin {
		namespace.Labels = map[string]string{"resource.kubernetes.io/admin-access": "true"}
	}
	return namespace, nil
}

type allowAll struct{}

func (allowAll) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

type recorder struct{ texts []string }

func (r *recorder) AddWarning(_, text string) { r.texts = append(r.texts, text) }
