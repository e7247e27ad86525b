// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package deploy

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const notYours = "is its node's to create, change and delete"

// tenant is a client with the right to Ports that docs/operate/install.md has for users.
func (c cluster) tenant() dynamic.Interface {
	c.Helper()
	_, err := c.api.CoreV1().ServiceAccounts(coelanNamespace).Create(c.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}, metav1.CreateOptions{})
	c.must(err)
	_, err = c.api.RbacV1().ClusterRoles().Create(c.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "coelan-ports"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"coelan.io"}, Resources: []string{"ports", "securitygroups", "floatingips"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		}},
	}, metav1.CreateOptions{})
	c.must(err)
	_, err = c.api.RbacV1().RoleBindings(tenant).Create(c.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "coelan-ports"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: coelanNamespace, Name: "tenant"}},
	}, metav1.CreateOptions{})
	c.must(err)
	return c.holder("tenant", "")
}

// as is a client with the name of one of Kubernetes' own controllers, and the rights that the API
// server gives it.
func (c cluster) as(controller string) dynamic.Interface {
	c.Helper()
	config := rest.CopyConfig(c.rest)
	config.Impersonate.UserName = "system:serviceaccount:kube-system:" + controller
	client, err := dynamic.NewForConfig(config)
	c.must(err)
	return client
}

func spec(change map[string]any) map[string]any { return map[string]any{"spec": change} }

func meta(change map[string]any) map[string]any { return map[string]any{"metadata": change} }

// A user with rights to Ports neither takes a pod's Port away, with which its policies would go,
// nor makes one. Ports of machines are the user's to write.
func TestPodPortsAreNotOfUsers(t *testing.T) {
	c := newCluster(t, "coelan.yaml")
	user := c.tenant()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	// Until the API server knows the Role and the policy, it refuses all or takes all.
	waited := podPort("wait", "worker1")
	for c.make(waited); ; c.make(waited) {
		err := remove(waited)(ctx, user)
		if refused(err, notYours) {
			break
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("the policy is not enforced: %v", err)
		}
	}
	pod, guest, own := podPort("p", "worker1"), dynamicPort("g", "worker1"), userPort("m", "", "")
	labels := func(values map[string]any) map[string]any { return meta(map[string]any{"labels": values}) }
	for name, tc := range map[string]struct {
		have   object
		do     write
		denied bool
	}{
		"delete a pod's":              {pod, remove(pod), true},
		"move a pod's":                {pod, patch(pod, spec(map[string]any{"node": "worker2"})), true},
		"a label of a pod's":          {pod, patch(pod, labels(map[string]any{"app": "web"})), true},
		"the owner of a pod's":        {pod, patch(pod, meta(map[string]any{"ownerReferences": nil})), true},
		"make one of a pod":           {waited, create(podPort("new", "worker1")), true},
		"make one of a guest":         {waited, create(dynamicPort("newguest", "worker1")), true},
		"delete a guest's":            {guest, remove(guest), true},
		"a node's label of a guest's": {guest, patch(guest, labels(map[string]any{"coelan.io/node": "worker2"})), true},
		"no such label of a guest's":  {guest, patch(guest, labels(map[string]any{"coelan.io/node": nil})), true},
		"a finalizer of a guest's":    {guest, patch(guest, meta(map[string]any{"finalizers": []any{"example.org/stay"}})), true},
		"groups of a guest's":         {guest, patch(guest, spec(map[string]any{"securityGroups": []any{"web"}})), false},
		"a label of a guest's":        {guest, patch(guest, labels(map[string]any{"app": "web"})), false},
		"make one of a machine":       {waited, create(userPort("mine", "", "")), false},
		"move a machine's":            {own, patch(own, spec(map[string]any{"node": "worker2"})), false},
		"delete a machine's":          {userPort("gone", "", ""), remove(userPort("gone", "", "")), false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster{t, c.rest, c.api, c.admin}.make(tc.have)
			switch err := tc.do(t.Context(), user); {
			case tc.denied && !refused(err, notYours):
				t.Errorf("%v, want a refusal: %s", err, notYours)
			case !tc.denied && err != nil:
				t.Error(err)
			}
		})
	}
	// An agent, the controller with its finalizers, administrators, and Kubernetes for pods and
	// namespaces that are gone do their work.
	stays := meta(map[string]any{"finalizers": []any{"coelan.io/stay"}})
	goes := meta(map[string]any{"finalizers": nil})
	for name, client := range map[string]dynamic.Interface{
		"agent": c.holder("coelan-agent", "worker1"), "administrator": c.admin, "controller": c.holder("coelan-controller", "worker1"),
		"garbage": c.as("generic-garbage-collector"), "namespace": c.as("namespace-controller"),
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range []object{podPort("by-"+name, "worker1"), dynamicPort("guest-by-"+name, "worker1")} {
				var tries []write
				switch name {
				case "agent":
					tries = append(tries, create(o))
				case "controller", "garbage":
					tries = append(tries, patch(o, stays), patch(o, goes))
				}
				if name != "agent" {
					cluster{t, c.rest, c.api, c.admin}.make(o)
				}
				for i, do := range append(tries, remove(o)) {
					if err := do(t.Context(), client); err != nil {
						t.Errorf("try %d: %v", i, err)
					}
				}
			}
		})
	}
}
