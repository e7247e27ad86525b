// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/podnets"
)

// attackTokens uses the token of one node's agent against pods, Ports and blocks of addresses of
// others. The control is the same request for the node's own pod. Nothing of it is carried out: all
// are dry runs.
func attackTokens(t *testing.T) {
	ctx := within(t, time.Minute)
	stolen := stolenToken(ctx, t, worker1)
	api, err := kubernetes.NewForConfig(stolen)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := client.New(stolen, client.Options{Scheme: world.objects.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	pod := func(key, patch string) func() error {
		return func() error {
			ns, name := split(key)
			_, err := api.CoreV1().Pods(ns).Patch(ctx, name, types.MergePatchType, []byte(patch), dry, "status")
			return err
		}
	}
	object := func(o client.Object, patch string) func() error {
		return func() error {
			return objects.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)),
				&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
		}
	}
	deletion := func(o client.Object) func() error {
		return func() error { return objects.Delete(ctx, o, client.DryRunAll) }
	}
	note := fmt.Sprintf(`{"metadata":{"annotations":{%q:"x"}}}`, podnets.AnnotationNetworkStatus)
	block := blockOf(ctx, t, worker2)
	for name, c := range map[string]struct {
		do      func() error
		allowed bool
	}{
		"annotates a pod of its node":          {pod("client1", note), true},
		"annotates a pod of another node":      {pod("client2", note), false},
		"labels a pod of its node":             {pod("client1", `{"metadata":{"labels":{"app":"web"}}}`), false},
		"labels a pod of another node":         {pod("client2", `{"metadata":{"labels":{"app":"web"}}}`), false},
		"moves a pod's address":                {pod("client2", `{"status":{"podIP":"10.244.1.66","podIPs":[{"ip":"10.244.1.66"}]}}`), false},
		"ends a pod":                           {pod("client1", `{"status":{"phase":"Failed"}}`), false},
		"puts another annotation on its pod":   {pod("client1", `{"metadata":{"annotations":{"coelan.io/other":"x"}}}`), false},
		"moves another node's Port to itself":  {object(portOf(ctx, t, "blue/shop2"), `{"status":{"node":"worker1"}}`), false},
		"changes another node's Port's status": {object(portOf(ctx, t, "blue/shop2"), `{"status":{"mac":"0a:ce:01:02:03:04"}}`), false},
		"deletes another node's Port":          {deletion(portOf(ctx, t, "blue/shop2")), false},
		"deletes another node's block":         {deletion(block), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.do()
			switch {
			case c.allowed && err != nil:
				t.Errorf("control: %v", err)
			case !c.allowed && err == nil:
				t.Error("the API server accepts it")
			case !c.allowed && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
				t.Errorf("refused for another reason: %v", err)
			}
		})
	}
}

// stolenToken is a client with a token of a node's agent.
func stolenToken(ctx context.Context, t *testing.T, node string) *rest.Config {
	t.Helper()
	list, err := world.api.CoreV1().Pods(agents).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=agent", FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("agents of %s: %d, %v", node, len(list.Items), err)
	}
	agent := list.Items[0]
	token, err := world.api.CoreV1().ServiceAccounts(agents).CreateToken(ctx, agent.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: agent.Name, UID: agent.UID},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := world.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = token.Status.Token
	return config
}

// portOf is the Port of a pod's first interface.
func portOf(ctx context.Context, t *testing.T, key string) *v1alpha1.Port {
	t.Helper()
	ns, name := split(key)
	var port v1alpha1.Port
	if err := world.objects.Get(ctx, types.NamespacedName{Namespace: ns, Name: name + ".eth0"}, &port); err != nil {
		t.Fatal(err)
	}
	return &port
}

// blockOf is one of the node's blocks of addresses.
func blockOf(ctx context.Context, t *testing.T, node string) *v1alpha1.AddressBlock {
	t.Helper()
	var list v1alpha1.AddressBlockList
	if err := world.objects.List(ctx, &list); err != nil {
		t.Fatal(err)
	}
	for _, b := range list.Items {
		if b.Spec.Node == node {
			return &b
		}
	}
	t.Fatalf("node %s has no block", node)
	return nil
}
