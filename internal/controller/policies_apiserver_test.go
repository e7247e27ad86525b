// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/apitest"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/controller/policies"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policyapi"
)

// seen waits until a node's view is as check wants it.
func (w *world) seen(to *policies.Distribution, node string, check func(policy.View) string) {
	w.Helper()
	w.until(func() string {
		var v policy.View
		to.Engine.Update(func(e *policy.Engine) { v = e.View(node) })
		if text := check(v); text != "" {
			return fmt.Sprintf("%s: %+v", text, v)
		}
		return ""
	})
}

func (w *world) condition(o client.Object, conditions func() []metav1.Condition, kind string, status metav1.ConditionStatus, reason, text string) {
	w.Helper()
	w.until(func() string {
		w.get(o)
		c := meta.FindStatusCondition(conditions(), kind)
		ok := c != nil && c.Status == status && c.Reason == reason && strings.Contains(c.Message, text)
		return want(ok, fmt.Sprintf("%s: %+v, want %s", o.GetName(), c, reason))
	})
}

// testPoliciesOfAllKinds is what becomes of policies of all kinds, and of bad ones.
func testPoliciesOfAllKinds(t *testing.T, api *apitest.API) {
	w := newWorld(t, api)
	definition := w.clusterDefinition()
	to := policies.NewDistribution()
	stop := w.start(func(o *controller.Options) { o.Policies = to })
	w.node(1)
	w.namespace("policed", map[string]string{"team": "x"})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "policed", Name: "web", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{v1alpha1.AnnotationSecurityGroups: "wide"},
		},
		Spec: corev1.PodSpec{NodeName: "worker1", Containers: []corev1.Container{{
			Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		}}},
	}
	w.create(pod)
	w.podPort(pod, "default", "10.244.1.5")
	key := intent.PodSubject(string(pod.UID))
	subject := func(v policy.View) intent.Subject {
		for _, s := range v.Subjects {
			if s.Key == key {
				return s
			}
		}
		return intent.Subject{}
	}

	// A group that does not exist closes the pod, and an Event of the pod says so.
	w.seen(to, "worker1", func(v policy.View) string { return want(subject(v).Closed != "", "not closed") })
	w.event("Pod", "web", "NotFound")
	group := &v1alpha1.SecurityGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "policed", Name: "wide"},
		Spec:       v1alpha1.SecurityGroupSpec{Rules: []v1alpha1.SecurityGroupRule{{Direction: v1alpha1.RuleIngress, RemoteGroup: "wide"}}},
	}
	w.create(group)
	w.seen(to, "worker1", func(v policy.View) string {
		s := subject(v)
		return want(s.Closed == "" && len(s.SecurityGroups) == 1 && len(s.Rules) == 1 && len(v.Peers) == 1, "not of the group")
	})
	ofGroup := func() []metav1.Condition { return group.Status.Conditions }
	w.condition(group, ofGroup, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
	w.condition(group, ofGroup, v1alpha1.ConditionProgrammed, metav1.ConditionFalse, v1alpha1.ReasonPending, "on 0 of 1 nodes")

	// A policy with a port by its name, and one of two blocks of which one has no meaning: the
	// other has effect.
	http := intstr.FromString("http")
	np := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "policed", Name: "some"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				From: []networkingv1.NetworkPolicyPeer{
					{IPBlock: &networkingv1.IPBlock{CIDR: "010.0.0.0/8"}}, {IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}},
				},
				Ports: []networkingv1.NetworkPolicyPort{{Port: &http}},
			}},
		},
	}
	w.create(np)
	created := time.Now()
	w.seen(to, "worker1", func(v policy.View) string {
		for _, r := range v.Rules {
			if r.Policy.Kind == intent.NetworkPolicy && len(r.Blocks) == 1 && r.Blocks[0].String() == "192.0.2.0/24" && r.Ports[0].First == 8080 {
				return want(len(subject(v).IngressIsolation) == 1, "not isolated")
			}
		}
		return "no such rule"
	})
	t.Logf("a NetworkPolicy is worked out within %v", time.Since(created).Round(time.Millisecond))
	told := func(count int32) {
		t.Helper()
		w.settles(func() string {
			var times int32
			list := &corev1.EventList{}
			if err := w.client.List(t.Context(), list, client.InNamespace("policed")); err != nil {
				t.Fatal(err)
			}
			for _, e := range list.Items {
				if e.InvolvedObject.Kind == "NetworkPolicy" && e.Reason == "Malformed" && strings.Contains(e.Message, `"010.0.0.0/8" is not a CIDR`) {
					times += max(1, e.Count)
				}
			}
			return want(times == count, fmt.Sprintf("told %d times", times))
		})
	}
	told(1)
	w.change(pod, func() { pod.Labels["app"] = "db" })
	w.seen(to, "worker1", func(v policy.View) string {
		return want(len(subject(v).IngressIsolation) == 0 && subject(v).Key != "", "still isolated")
	})

	// ClusterNetworkPolicies come to be known while the controller runs, and one of a newer
	// definition fails closed.
	w.create(definition)
	cnp := policyapi.New()
	cnp.SetName("closed")
	cnp.Object["spec"] = map[string]any{
		"tier": "Admin", "priority": int64(7), "subject": map[string]any{"namespaces": map[string]any{"matchLabels": map[string]any{"team": "x"}}},
		"ingress": []any{map[string]any{"action": "Pass", "from": []any{map[string]any{"moon": "full"}}}},
	}
	createCluster := func() {
		w.until(func() string {
			if err := w.client.Create(t.Context(), cnp); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	createCluster()
	w.seen(to, "worker1", func(v policy.View) string {
		for _, r := range v.Rules {
			if r.Policy.Kind == intent.ClusterNetworkPolicy && r.Action == intent.Deny && r.AnyPeer && r.Priority == 7 {
				return want(len(subject(v).Rules) == 2, "not its subject's")
			}
		}
		return "no such rule"
	})
	ofCluster := func() []metav1.Condition {
		status, _, _ := unstructured.NestedMap(cnp.Object, "status")
		held := struct {
			Conditions []metav1.Condition `json:"conditions"`
		}{}
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(status, &held)
		return held.Conditions
	}
	w.condition(cnp, ofCluster, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonPartiallyInvalid, "spec.ingress[0].from[0].moon: is not known")
	w.condition(cnp, ofCluster, v1alpha1.ConditionProgrammed, metav1.ConditionFalse, v1alpha1.ReasonPending, "on 0 of 1 nodes")
	w.event("ClusterNetworkPolicy", "closed", "Unsupported")

	// With their definition they go, and come again.
	w.delete(definition)
	w.seen(to, "worker1", func(v policy.View) string { return want(len(subject(v).Rules) == 1, "still its subject's") })
	w.until(func() string { return want(!w.get(definition), "the definition is there") })
	definition = w.clusterDefinition()
	w.create(definition)
	cnp.SetUID("")
	cnp.SetResourceVersion("")
	delete(cnp.Object, "status")
	createCluster()
	w.seen(to, "worker1", func(v policy.View) string { return want(len(subject(v).Rules) == 2, "not its subject's again") })

	// The next controller knows all of it from its first moment, and repeats nothing.
	stop()
	to = policies.NewDistribution()
	w.start(func(o *controller.Options) { o.Policies = to })
	w.change(pod, func() { pod.Labels["app"] = "web" })
	w.seen(to, "worker1", func(v policy.View) string { return want(len(subject(v).Rules) == 3, "not all rules") })
	told(1)

	for _, o := range []client.Object{np, cnp, group} {
		w.delete(o)
	}
	w.change(pod, func() { delete(pod.Annotations, v1alpha1.AnnotationSecurityGroups) })
	w.seen(to, "worker1", func(v policy.View) string {
		s := subject(v)
		return want(len(v.Rules)+len(v.Peers)+len(s.Rules)+len(s.IngressIsolation)+len(s.SecurityGroups) == 0 && s.Closed == "" && s.Key != "", "something is left")
	})
	w.delete(pod)
	w.seen(to, "worker1", func(v policy.View) string { return want(len(v.Subjects) == 0, "a subject is left") })
}

// clusterDefinition is that of ClusterNetworkPolicies, as far as it matters here; it goes
// when the test ends.
func (w *world) clusterDefinition() client.Object {
	if err := apiextensionsv1.AddToScheme(w.client.Scheme()); err != nil {
		w.Fatal(err)
	}
	any := true
	object := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &any}
	d := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name:        policyapi.Resource + "." + policyapi.GroupVersion.Group,
			Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: policyapi.GroupVersion.Group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: policyapi.Resource, Singular: "clusternetworkpolicy", Kind: policyapi.Kind, ListKind: policyapi.Kind + "List",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: policyapi.GroupVersion.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": object, "status": object},
				}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
	w.Cleanup(func() {
		// The API server ends the definition's objects first. Until that is done the next test
		// cannot create it again.
		ctx := context.Background()
		w.ignoreGone(w.client.Delete(ctx, d))
		w.until(func() string {
			err := w.client.Get(ctx, client.ObjectKeyFromObject(d), d)
			return want(apierrors.IsNotFound(err), fmt.Sprintf("the definition %s is there: %v", d.Name, err))
		})
	})
	return d
}
