package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// searchTimeout bounds one search; upstream's plugin default is 10 s.
const searchTimeout = 30 * time.Second

type allocateQuestion struct {
	ID string `json:"id"`
	// Features holds gate names; a gate that is not named is off.
	Features map[string]bool `json:"features"`
	// Implementation forces "stable", "incubating" or "experimental"; empty: as upstream selects.
	Implementation string                         `json:"implementation"`
	Node           *corev1.Node                   `json:"node"`
	Slices         []*resourceapi.ResourceSlice   `json:"slices"`
	Classes        []*resourceapi.DeviceClass     `json:"classes"`
	Claims         []*resourceapi.ResourceClaim   `json:"claims"`
	Allocated      []*resourceapi.ResourceClaim   `json:"allocated"`
	TaintRules     []*resourceapi.DeviceTaintRule `json:"taintRules"`
	// Repeat asks for a timing on top of the answer; see timing.
	Repeat int `json:"repeat"`
	// Nodes are what a timing visits; the question's only node when there are none.
	Nodes []*corev1.Node `json:"nodes"`
}

type allocateAnswer struct {
	ID             string                         `json:"id"`
	Outcome        string                         `json:"outcome"`
	Message        string                         `json:"message,omitempty"`
	Results        []resourceapi.AllocationResult `json:"results,omitempty"`
	Implementation string                         `json:"implementation,omitempty"`
	Steps          int64                          `json:"steps,omitempty"`
	Version        string                         `json:"version"`
	Timing         *timing                        `json:"timing,omitempty"`
}

func answerAllocate(line []byte) any {
	var question allocateQuestion
	if err := json.Unmarshal(line, &question); err != nil {
		return allocateAnswer{Outcome: "bad_question", Message: err.Error(), Version: upstreamVersion}
	}
	return allocate(&question)
}

func allocate(question *allocateQuestion) (answer allocateAnswer) {
	answer = allocateAnswer{ID: question.ID, Version: upstreamVersion}
	defer func() {
		if recovered := recover(); recovered != nil {
			answer.Outcome = "panic"
			answer.Message = fmt.Sprint(recovered)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), searchTimeout)
	defer cancel()

	features := featuresOf(question.Features)
	forceImplementation(question.Implementation)
	resourceSlices := question.Slices
	if question.Features["DRADeviceTaints"] && question.Features["DRADeviceTaintRules"] {
		resourceSlices = withTaintRules(resourceSlices, question.TaintRules)
	}
	newAllocator := func(ctx context.Context) (structured.Allocator, error) {
		return structured.NewAllocator(ctx, features,
			allocatedState(question.Allocated, features.ConsumableCapacity),
			classes(question.Classes), resourceSlices, celCache(features))
	}
	allocator, err := newAllocator(ctx)
	if err != nil {
		answer.Outcome = "bad_question"
		answer.Message = err.Error()
		return answer
	}
	answer.Implementation = implementationOf(allocator)
	results, err := allocator.Allocate(ctx, question.Node, question.Claims)
	answer.Steps = stepsOf(allocator)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		answer.Outcome = "timeout"
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		answer.Outcome = "node_error"
		answer.Message = err.Error()
	case err != nil:
		answer.Outcome = "fatal"
		answer.Message = err.Error()
	case results == nil && len(question.Claims) > 0:
		answer.Outcome = "does_not_fit"
	default:
		answer.Outcome = "allocated"
		answer.Results = results
	}
	if question.Repeat > 0 {
		answer.Timing = measure(question, newAllocator)
	}
	return answer
}

func featuresOf(gates map[string]bool) structured.Features {
	return structured.Features{
		AdminAccess:             gates["DRAAdminAccess"],
		CompatibilityGroups:     gates["DRADeviceCompatibilityGroups"],
		ConsumableCapacity:      gates["DRAConsumableCapacity"],
		DerivedAttributes:       gates["DRADerivedAttributes"],
		DeviceBindingAndStatus:  gates["DRADeviceBindingConditions"] && gates["DRAResourceClaimDeviceStatus"],
		DeviceTaints:            gates["DRADeviceTaints"],
		FractionalCapacityRange: gates["DRAFractionalCapacityRange"],
		ListTypeAttributes:      gates["DRAListTypeAttributes"],
		OptionalNodeOperations:  gates["DRAOptionalNodeOperations"],
		PartitionableDevices:    gates["DRAPartitionableDevices"],
		PrioritizedList:         gates["DRAPrioritizedList"],
	}
}

func forceImplementation(name string) {
	if name == "" {
		structured.EnableAllocators()
		return
	}
	structured.EnableAllocators(name)
}

// implementationOf is the package name of the allocator: "stable", "incubating" or "experimental".
func implementationOf(allocator structured.Allocator) string {
	return string(reflect.ValueOf(allocator).MethodByName("Channel").Call(nil)[0].String())
}

// stepsOf reads the search's step counter, 0 when the implementation has none. Its type is
// internal to upstream, hence the reflection.
func stepsOf(allocator structured.Allocator) int64 {
	method := reflect.ValueOf(allocator).MethodByName("GetStats")
	if !method.IsValid() {
		return 0
	}
	return method.Call(nil)[0].FieldByName("NumAllocateOneInvocations").Int()
}

// allocatedState does what the scheduler plugin's claim tracker does with allocated claims.
func allocatedState(claims []*resourceapi.ResourceClaim, consumable bool) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if !consumable || result.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
			if result.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			}
		}
	}
	return state
}

// withTaintRules appends the taints of matching rules to copies of the slices, in rule order.
func withTaintRules(in []*resourceapi.ResourceSlice, rules []*resourceapi.DeviceTaintRule) []*resourceapi.ResourceSlice {
	out := make([]*resourceapi.ResourceSlice, 0, len(in))
	for _, slice := range in {
		slice = slice.DeepCopy()
		for _, rule := range rules {
			selector := rule.Spec.DeviceSelector
			if selector == nil ||
				selector.Driver != nil && *selector.Driver != slice.Spec.Driver ||
				selector.Pool != nil && *selector.Pool != slice.Spec.Pool.Name {
				continue
			}
			for i := range slice.Spec.Devices {
				device := &slice.Spec.Devices[i]
				if selector.Device == nil || *selector.Device == device.Name {
					device.Taints = append(device.Taints, rule.Spec.Taint)
				}
			}
		}
		out = append(out, slice)
	}
	return out
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if i := slices.IndexFunc(c, func(class *resourceapi.DeviceClass) bool { return class.Name == name }); i >= 0 {
		return c[i], nil
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclass"), name)
}

var (
	celCaches     = map[cel.Features]*cel.Cache{}
	celCachesLock sync.Mutex
)

// celCache keeps one cache for each feature set: compiling is most of a small case's time.
func celCache(features structured.Features) *cel.Cache {
	key := cel.Features{
		EnableConsumableCapacity: features.ConsumableCapacity,
		EnableListTypeAttributes: features.ListTypeAttributes,
	}
	celCachesLock.Lock()
	defer celCachesLock.Unlock()
	if celCaches[key] == nil {
		celCaches[key] = cel.NewCache(1000, key)
	}
	return celCaches[key]
}
