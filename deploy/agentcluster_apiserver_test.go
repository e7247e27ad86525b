// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"coelan.io/coelan/internal/apitest"
)

const (
	coelanNamespace = "coelan-system"
	tenant          = "shop"
	podPortsPolicy  = "coelan-pod-ports"
)

// The resources that the agent's rights name.
var (
	nodeResource  = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	podResource   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	eventResource = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	portResource  = schema.GroupVersionResource{Group: "coelan.io", Version: "v1alpha1", Resource: "ports"}
	blockResource = schema.GroupVersionResource{Group: "coelan.io", Version: "v1alpha1", Resource: "addressblocks"}
)

// cluster is an API with nodes worker1 and worker2, and the rights of coelan.yaml.
type cluster struct {
	*testing.T
	rest  *rest.Config
	api   kubernetes.Interface
	admin dynamic.Interface
}

// newCluster is a new one, with what a manifest has for agents and controllers, but for what runs
// them. The service account "other" has the rights of agents.
func newCluster(t *testing.T, manifest string) cluster {
	t.Helper()
	config := apitest.Start(t).REST
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster{t, config, api, admin}
	for _, name := range []string{coelanNamespace, tenant} {
		_, err := api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		c.must(err)
	}
	for _, name := range []string{"worker1", "worker2"} {
		_, err := api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		c.must(err)
	}
	_, err = api.CoreV1().ServiceAccounts(coelanNamespace).Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	c.must(err)
	c.install(manifest)
	binding := named[*rbacv1.ClusterRoleBinding](t, "coelan-agent")
	binding.Name, binding.Subjects[0].Name = "other", "other"
	_, err = api.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	c.must(err)
	return c
}

func (c cluster) install(manifest string) {
	c.Helper()
	resources := map[string]string{
		"ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings", "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
		"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
		"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	}
	for _, o := range objects(c.T, manifest) {
		kind := o.GetObjectKind().GroupVersionKind()
		resource, ok := resources[kind.Kind]
		if !ok {
			continue
		}
		value, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		c.must(err)
		u := &unstructured.Unstructured{Object: value}
		if name := u.GetName(); !strings.HasPrefix(name, "coelan-agent") && !strings.HasPrefix(name, "coelan-controller") &&
			name != "coelan-metrics-reader" && name != podPortsPolicy {
			continue
		}
		_, err = at(c.admin, kind.GroupVersion().WithResource(resource), u.GetNamespace()).Create(c.Context(), u, metav1.CreateOptions{})
		c.must(err)
	}
}

// enforced waits until the API server has all policies: each refuses what it concerns.
func (c cluster) enforced(unbound dynamic.Interface) {
	c.Helper()
	waited := []object{
		pod("wait", "worker1"), podPort("wait", "worker1"), block("blue-10-9-9-0-26", "10.9.9.0/26", "worker1", ""),
		event("wait", "coelan-agent", "worker1"),
	}
	tries := []write{
		patch(waited[0], annotations(map[string]any{statusKey: "[]"}), "status"), remove(waited[1]),
		patchStatus(waited[1], map[string]any{"phase": "Ready"}), remove(waited[2]), patchStatus(waited[2], map[string]any{"used": 1}),
		patch(waited[3], map[string]any{"count": 2}),
	}
	for _, o := range waited {
		c.make(o)
	}
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for len(tries) > 0 {
		err := tries[0](ctx, unbound)
		if refused(err, "has to be bound") {
			tries = tries[1:]
			continue
		}
		if apierrors.IsNotFound(err) { // it was deleted before the policy had effect
			for _, o := range waited {
				if creating := create(o)(ctx, c.admin); creating != nil && !apierrors.IsAlreadyExists(creating) {
					c.Fatal(creating)
				}
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			c.Fatalf("the policies are not enforced: %v", err)
		}
	}
}

// make makes an object with its status, unless it is there.
func (c cluster) make(o object) {
	c.Helper()
	namespace, name := o.name()
	value := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(o.value)}
	resource := at(c.admin, o.resource, namespace)
	_, err := resource.Create(c.Context(), value, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return
	}
	c.must(err)
	if status, ok := o.value["status"]; ok {
		text, err := json.Marshal(map[string]any{"status": status})
		c.must(err)
		_, err = resource.Patch(c.Context(), name, types.MergePatchType, text, metav1.PatchOptions{}, "status")
		c.must(err)
	}
}

// holder is a client with a token.
func (c cluster) holder(account, node string) dynamic.Interface {
	c.Helper()
	client, err := dynamic.NewForConfig(c.config(c.token(account, node)))
	c.must(err)
	return client
}

// config is that of a client with a token and nothing else.
func (c cluster) config(token string) *rest.Config {
	config := rest.AnonymousClientConfig(c.rest)
	config.BearerToken, config.QPS = token, -1
	return config
}

// token is one of a service account, bound to a pod on that node; "": bound to no pod.
func (c cluster) token(account, node string) string {
	c.Helper()
	spec := authenticationv1.TokenRequestSpec{}
	if node != "" {
		made, err := c.api.CoreV1().Pods(coelanNamespace).Create(c.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: account + "-" + node},
			Spec: corev1.PodSpec{
				NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			},
		}, metav1.CreateOptions{})
		c.must(err)
		spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: made.Name, UID: made.UID}
	}
	answer, err := c.api.CoreV1().ServiceAccounts(coelanNamespace).CreateToken(c.Context(), account,
		&authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	c.must(err)
	return answer.Status.Token
}

func (c cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(fmt.Errorf("%s: %w", c.Name(), err))
	}
}
