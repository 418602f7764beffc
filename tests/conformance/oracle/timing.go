package main

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/structured"
)

// timing says how long upstream takes for one scheduling attempt, medians over the repetitions.
//
// An attempt is timed as kube-scheduler makes it: PreFilter collects what is allocated and creates
// one allocator (setup), then Filter calls Allocate once for each node (allocate: all nodes
// together, one after the other). Selectors are compiled before, as they are in a scheduler that
// has run for a while; what they say of a device is evaluated in each Allocate, as upstream keeps
// none of it. Decoding the question is not in it.
type timing struct {
	Repetitions         int   `json:"repetitions"`
	Nodes               int   `json:"nodes"`
	Fitting             int   `json:"fitting"`
	SetupNanoseconds    int64 `json:"setupNanoseconds"`
	AllocateNanoseconds int64 `json:"allocateNanoseconds"`
}

// measure runs the attempt question.Repeat times. The caller has asked once already, so that the
// selectors are compiled.
func measure(question *allocateQuestion, newAllocator func(context.Context) (structured.Allocator, error)) *timing {
	nodes := question.Nodes
	if len(nodes) == 0 {
		nodes = []*corev1.Node{question.Node}
	}
	result := &timing{Repetitions: question.Repeat, Nodes: len(nodes)}
	setups := make([]time.Duration, 0, question.Repeat)
	searches := make([]time.Duration, 0, question.Repeat)
	for range question.Repeat {
		setup, search, fitting := attempt(question, nodes, newAllocator)
		setups = append(setups, setup)
		searches = append(searches, search)
		result.Fitting = fitting
	}
	result.SetupNanoseconds = median(setups).Nanoseconds()
	result.AllocateNanoseconds = median(searches).Nanoseconds()
	return result
}

func attempt(question *allocateQuestion, nodes []*corev1.Node, newAllocator func(context.Context) (structured.Allocator, error)) (setup, search time.Duration, fitting int) {
	ctx, cancel := context.WithTimeout(context.Background(), searchTimeout)
	defer cancel()
	start := time.Now()
	allocator, err := newAllocator(ctx)
	setup = time.Since(start)
	if err != nil {
		panic(err) // the question has been answered once, so this cannot be
	}
	start = time.Now()
	for _, node := range nodes {
		results, err := allocator.Allocate(ctx, node, question.Claims)
		if err == nil && results != nil {
			fitting++
		}
	}
	return setup, time.Since(start), fitting
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return of[len(of)/2]
}
