// What Karpenter makes of a NodePool and of a pod, by its own packages: whether it accepts the pool at all, of which
// architectures and systems its nodes may be, and whether it makes a node for the pod. Questions come as JSON on standard
// input, one a line, and so do answers.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"
)

type question struct {
	Pool json.RawMessage `json:"pool,omitempty"`
	Pod  *corev1.Pod     `json:"pod,omitempty"`
	// Offered: the architectures and systems of the instance types that a provider has.
	Architectures []string `json:"architectures"`
	Systems       []string `json:"systems"`
}

type answer struct {
	// Refused: the pool never becomes ready.
	Refused string `json:"refused"`
	// Nodes that it may make, each as system/architecture.
	Platforms []string `json:"platforms"`
	// Provisionable: the pod makes it look for a node.
	Provisionable bool `json:"provisionable"`
}

func main() {
	questions, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for questions.More() {
		var asked question
		if err := questions.Decode(&asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if err := answers.Encode(judged(asked)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
}

func judged(asked question) answer {
	found := answer{Platforms: []string{}}
	if asked.Pod != nil {
		found.Provisionable = podutils.IsProvisionable(asked.Pod)
		return found
	}
	var pool v1.NodePool
	if err := json.Unmarshal(asked.Pool, &pool); err != nil {
		found.Refused = err.Error()
		return found
	}
	if err := pool.RuntimeValidate(context.Background()); err != nil {
		found.Refused = err.Error()
		return found
	}
	// As NewNodeClaimTemplate adds them up.
	template := pool.Spec.Template
	wanted := scheduling.NewRequirements()
	wanted.Add(scheduling.NewNodeSelectorRequirementsWithMinValues(template.Spec.Requirements...).Values()...)
	wanted.Add(scheduling.NewLabelRequirements(template.Labels).Values()...)
	for _, system := range asked.Systems {
		for _, architecture := range asked.Architectures {
			// An instance type, as filterInstanceTypesByRequirements looks at it.
			instance := scheduling.NewRequirements(
				scheduling.NewRequirement(corev1.LabelArchStable, corev1.NodeSelectorOpIn, architecture),
				scheduling.NewRequirement(corev1.LabelOSStable, corev1.NodeSelectorOpIn, system),
			)
			if instance.Intersects(wanted) == nil {
				found.Platforms = append(found.Platforms, system+"/"+architecture)
			}
		}
	}
	return found
}
