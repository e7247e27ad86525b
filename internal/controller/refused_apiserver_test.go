// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/controller/policies"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/policystream/streamtest"
)

// testRefusedBySwitches has agents say what their switches refuse: conditions of these objects say
// so, as long as it is so.
func testRefusedBySwitches(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	w.create(w.clusterDefinition())
	distribution := policies.NewDistribution()
	w.start(func(o *controller.Options) { o.Policies = distribution })
	w.node(1)
	w.node(2)
	w.namespace("refused", map[string]string{"team": "refused"})
	for _, node := range []string{"worker1", "worker2"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "refused", Name: node, Annotations: map[string]string{v1alpha1.AnnotationSecurityGroups: "web"},
			},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		if node == "worker2" {
			pod.Annotations = nil
		}
		w.create(pod)
		w.podPort(pod, "default", "10.244."+node[len("worker"):]+".5")
	}
	group := &v1alpha1.SecurityGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "refused", Name: "web"},
		Spec:       v1alpha1.SecurityGroupSpec{Rules: []v1alpha1.SecurityGroupRule{{Direction: v1alpha1.RuleIngress}}},
	}
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "refused", Name: "deny"}}
	red := overlay("red", "", "10.9.0.0/16")
	w.create(group, np, red)
	cnp := policyapi.New()
	cnp.SetName("refused")
	cnp.Object["spec"] = map[string]any{
		"tier": "Admin", "priority": int64(7), "subject": map[string]any{"namespaces": map[string]any{"matchLabels": map[string]any{"team": "refused"}}},
		"ingress": []any{map[string]any{"action": "Deny", "from": []any{map[string]any{"networks": []any{"192.0.2.0/24"}}}}},
	}
	w.until(func() string {
		if err := w.client.Create(t.Context(), cnp); err != nil {
			return err.Error()
		}
		return ""
	})
	ofCluster := func() []metav1.Condition {
		held := struct {
			Conditions []metav1.Condition `json:"conditions"`
		}{}
		status, _, _ := unstructured.NestedMap(cnp.Object, "status")
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(status, &held)
		return held.Conditions
	}
	ofGroup := func() []metav1.Condition { return group.Status.Conditions }
	ofNetwork := func() []metav1.Condition { return red.Status.Conditions }
	router := &v1alpha1.Router{ObjectMeta: metav1.ObjectMeta{Name: "red"}}
	ofRouter := func() []metav1.Condition { return router.Status.Conditions }
	in := func(o client.Object, conditions func() []metav1.Condition, nodes string) {
		t.Helper()
		w.condition(o, conditions, v1alpha1.ConditionProgrammed, metav1.ConditionTrue, v1alpha1.ReasonProgrammed, nodes)
	}
	refused := func(o client.Object, conditions func() []metav1.Condition, message string) {
		t.Helper()
		w.condition(o, conditions, v1alpha1.ConditionProgrammed, metav1.ConditionFalse, v1alpha1.ReasonRefused, message)
	}
	notRefused := func(o client.Object, conditions func() []metav1.Condition) {
		t.Helper()
		w.settles(func() string {
			w.get(o)
			c := meta.FindStatusCondition(conditions(), v1alpha1.ConditionProgrammed)
			return want(c != nil && c.Reason != v1alpha1.ReasonRefused, o.GetName()+" is refused")
		})
	}

	authority, err := streamtest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	replica, err := streamtest.NewOf(authority, distribution.Hub)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := replica.Stop(); err != nil {
			t.Error(err)
		}
	})
	one, _ := streamtest.StartAgent(t, replica.ClientOptions("worker1"))
	two, stopTwo := streamtest.StartAgent(t, replica.ClientOptions("worker2"))
	in(group, ofGroup, "on 1 of 1 nodes")
	in(cnp, ofCluster, "on 2 of 2 nodes")
	notRefused(red, ofNetwork)

	const reason = "OFPBAC_BAD_ARGUMENT"
	all := []policy.Refusal{
		{Object: intent.PolicyRef{Kind: intent.SecurityGroup, Namespace: "refused", Name: "web"}, Reason: reason},
		{Object: intent.PolicyRef{Kind: intent.ClusterNetworkPolicy, Name: "refused"}, Reason: reason},
		{Object: intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: "refused", Name: "deny"}, Reason: reason},
		{Object: reconcile.ObjectRef(intent.KindNetwork, "red"), Reason: reason},
		{Object: reconcile.ObjectRef(intent.KindRouter, "red"), Reason: reason},
		{Object: reconcile.ObjectRef(intent.KindNetwork, "none"), Reason: reason},
	}
	one.Refused(all)
	two.Refused(all)
	// Of the group worker2 has no pod: what its agent says of that does not count.
	refused(group, ofGroup, "left out on node worker1, whose switch refuses it: "+reason)
	refused(cnp, ofCluster, "left out on 2 nodes, whose switches refuse it, such as worker1: "+reason)
	refused(red, ofNetwork, "left out on 2 nodes, whose switches refuse it, such as worker1: "+reason)
	refused(router, ofRouter, "left out on 2 nodes")
	refused(cnp, ofCluster, "on 0 of 2 nodes")
	w.condition(red, ofNetwork, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")

	one.Refused(all[:1])
	refused(cnp, ofCluster, "left out on node worker2")
	refused(red, ofNetwork, "left out on node worker2")
	refused(cnp, ofCluster, "on 1 of 2 nodes")
	// What a node has said ends with its stream.
	stopTwo()
	notRefused(cnp, ofCluster)
	notRefused(red, ofNetwork)
	notRefused(router, ofRouter)
	refused(group, ofGroup, "left out on node worker1")
	one.Refused(nil)
	notRefused(group, ofGroup)
	in(group, ofGroup, "on 1 of 1 nodes")
}
