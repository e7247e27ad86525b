// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/nodeconfig"
)

// configures is a configuration for a node, or for all.
func configures(name, node string, mtu int32) *v1alpha1.NodeNetworkConfig {
	c := &v1alpha1.NodeNetworkConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.NodeName, c.Spec.MTU = node, mtu
	if node == "" {
		c.Spec.NodeSelector = &metav1.LabelSelector{}
	}
	return c
}

// configured waits until a configuration has a reason on so many nodes, and for nothing to change
// that.
func (w *world) configured(name, reason string, applied, selected int32) *v1alpha1.NodeNetworkConfig {
	w.Helper()
	c := configures(name, "", 0)
	w.settles(func() string {
		if !w.get(c) {
			return name + " is not there"
		}
		ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != reason || ready.ObservedGeneration != c.Generation ||
			c.Status.AppliedNodes != applied || c.Status.SelectedNodes != selected {
			return fmt.Sprintf("%s: %+v, want %s on %d of %d", name, c.Status, reason, applied, selected)
		}
		return ""
	})
	return c
}

// reports has a node say what it runs with, and what it refuses.
func (w *world) reports(n *corev1.Node, applied, refused *v1alpha1.NodeNetworkConfig, why string) {
	w.Helper()
	var r nodeconfig.Report
	if applied != nil {
		r.Applied = &nodeconfig.Applied{Name: applied.Name, UID: string(applied.UID), Generation: applied.Generation, Time: time.Unix(1e9, 0)}
	}
	if refused != nil {
		r.Refused = &nodeconfig.Refused{Name: refused.Name, UID: string(refused.UID), Generation: refused.Generation, Message: why}
	}
	text, err := r.Encode()
	if err != nil {
		w.Fatal(err)
	}
	w.change(n, func() { metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationNetworkConfig, text) })
}

// testNodeNetworkConfigs follow what nodes report, also over a change of the controller.
func testNodeNetworkConfigs(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	stop := w.start(nil)
	first, second := w.node(1), w.node(2)
	w.create(configures("all", "", 1400))
	all := w.configured("all", v1alpha1.ReasonPending, 0, 2)
	w.reports(first, all, nil, "")
	w.configured("all", v1alpha1.ReasonPending, 1, 2)
	w.reports(second, nil, all, "no card")
	w.configured("all", v1alpha1.ReasonRefusedByNodes, 1, 2)
	w.event("NodeNetworkConfig", "all", v1alpha1.ReasonRefusedByNodes)
	w.reports(second, all, nil, "")
	w.configured("all", v1alpha1.ReasonReady, 2, 2)

	// A younger one for the same nodes waits; one by name does not, and holds without the node's
	// reports after the controller has changed.
	w.create(configures("younger", "", 1300))
	w.configured("younger", v1alpha1.ReasonNodesTaken, 0, 0)
	w.event("NodeNetworkConfig", "younger", v1alpha1.ReasonNodesTaken)
	stop()
	w.create(configures("named", "worker2", 1350))
	w.start(nil)
	w.configured("named", v1alpha1.ReasonPending, 0, 1)
	w.configured("all", v1alpha1.ReasonReady, 1, 1)
	w.delete(all)
	w.configured("younger", v1alpha1.ReasonPending, 0, 1)
	w.delete(first)
	w.configured("younger", v1alpha1.ReasonNoNode, 0, 0)

	// What no node can have; and what the API server itself refuses.
	bad := configures("named", "", 0)
	w.change(bad, func() { bad.Spec.BridgeMappings = map[string]string{"office": "br-int"} })
	w.configured("named", v1alpha1.ReasonInvalid, 0, 1)
	w.event("NodeNetworkConfig", "named", v1alpha1.ReasonInvalid)
	if err := w.client.Create(t.Context(), configures("small", "worker2", 68)); err == nil {
		t.Error("an MTU of 68 is accepted")
	}
}
