// SPDX-License-Identifier: Apache-2.0

// Package nodeconfig decides which NodeNetworkConfig holds for a node, translates it into settings
// of the agent, and computes its status from what nodes report. It does no I/O.
package nodeconfig

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/translate"
)

// Choice is which configuration holds for each node.
type Choice struct {
	// Of is by the node's name. A node without an entry has the ConfigMap alone.
	Of map[string]*v1alpha1.NodeNetworkConfig
	// Taken are nodes that a configuration is for as much as an older one is, which holds; by the
	// name of the younger one, in the order of the nodes' names.
	Taken map[string][]Taken
}

// Taken is a node and the configuration that holds for it.
type Taken struct{ Node, By string }

// Choose takes for each node a configuration that names it, or else one that selects it; of several
// alike the oldest. That a selector gives way to a name is no conflict.
func Choose(nodes []*corev1.Node, configs []*v1alpha1.NodeNetworkConfig) Choice {
	configs = slices.SortedFunc(slices.Values(configs), translate.Older)
	named := map[string][]*v1alpha1.NodeNetworkConfig{}
	type selecting struct {
		config   *v1alpha1.NodeNetworkConfig
		selector labels.Selector
	}
	var selectors []selecting
	for _, c := range configs {
		if c.DeletionTimestamp != nil {
			continue
		}
		if c.Spec.NodeName != "" {
			named[c.Spec.NodeName] = append(named[c.Spec.NodeName], c)
			continue
		}
		if s, err := metav1.LabelSelectorAsSelector(c.Spec.NodeSelector); err == nil {
			selectors = append(selectors, selecting{c, s})
		}
	}
	choice := Choice{Of: map[string]*v1alpha1.NodeNetworkConfig{}, Taken: map[string][]Taken{}}
	for _, n := range slices.SortedFunc(slices.Values(nodes), byName) {
		candidates := named[n.Name]
		if len(candidates) == 0 {
			for _, s := range selectors {
				if s.selector.Matches(labels.Set(n.Labels)) {
					candidates = append(candidates, s.config)
				}
			}
		}
		for i, c := range candidates {
			if i == 0 {
				choice.Of[n.Name] = c
				continue
			}
			choice.Taken[c.Name] = append(choice.Taken[c.Name], Taken{n.Name, candidates[0].Name})
		}
	}
	return choice
}
