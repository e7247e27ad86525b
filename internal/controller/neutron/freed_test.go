// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
)

// A pod that has lost its Port object is still plugged. When the policies go that its port has
// groups of, it is not opened by that: the port is made anew, and nothing is plugged with its id.
func TestPluggedPortIsNeverOpened(t *testing.T) {
	number := intstr.FromInt32(8080)
	c := newChurn(t)
	c.start()
	web := c.add(app{name: "web"})
	told := &v1alpha1.Port{}
	if err := c.get(client.ObjectKeyFromObject(web.port), told); err != nil {
		t.Fatal(err)
	}
	plugged := told.Status.Neutron.ID
	groups := func() (of []any, there bool) {
		for _, p := range c.neutron.All("ports") {
			if p["id"] == plugged {
				of, _ = p["security_groups"].([]any)
				return of, true
			}
		}
		return nil, false
	}
	open := func() (ids []any) {
		for _, g := range c.neutron.All("security-groups") {
			if name, _ := g["name"].(string); name == "open-ingress" {
				ids = append(ids, g["id"])
			}
		}
		return ids
	}
	isOpen := func() bool {
		of, _ := groups()
		return slices.ContainsFunc(open(), func(id any) bool { return slices.Contains(of, id) })
	}
	if !isOpen() {
		t.Fatal("a pod without policies is closed: the test sees nothing")
	}
	policy := policyFor("web", "web", "cache", number)
	c.set(policy)
	c.await("the policy is not in effect", c.changes.Changed, func() bool { return !isOpen() })
	c.settle()
	c.neutron.Arrive(func(method, path string) {
		if method == "PUT" && path == "ports/"+plugged {
			t.Error("the port of a pod that has lost its Port object is changed")
		}
	})
	c.delete(web.port)
	c.absent(web.port)
	c.settle()
	if of, there := groups(); !there || isOpen() {
		t.Errorf("once its Port is gone it has the groups %v, %v", of, there)
	}
	c.delete(policy)
	c.await("the port keeps the groups of a policy that is gone", c.changes.Changed, func() bool {
		_, there := groups()
		return !there || isOpen()
	})
	if of, there := groups(); there {
		t.Errorf("it has the groups %v, of which %v are open", of, open())
	}
}
