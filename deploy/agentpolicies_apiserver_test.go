// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package deploy

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
)

// An agent's token changes what is of its own node, and nothing else, by every right that it
// has. Another service account with the same rights does what an agent must not: the
// policies concern agents alone.
func TestAgentToken(t *testing.T) {
	c := newCluster(t, "coelan.yaml")
	table := writes()
	for _, rule := range named[*rbacv1.ClusterRole](t, "coelan-agent").Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if slices.Contains([]string{"get", "list", "watch"}, verb) || strings.HasSuffix(resource, "reviews") {
						continue // it changes nothing
					}
					r := right{group, resource, verb}
					accepts := func(call call) bool { return call.denied == "" }
					refuses := func(call call) bool { return call.denied != "" }
					if !slices.ContainsFunc(table[r], accepts) || !slices.ContainsFunc(table[r], refuses) {
						t.Errorf("agents may %s %s of group %q: the table lacks what they do of their own node, or what they must not", verb, resource, group)
					}
				}
			}
		}
	}
	worker1, unbound, other := c.holder("coelan-agent", "worker1"), c.holder("coelan-agent", ""), c.holder("other", "worker1")
	c.enforced(unbound)
	t.Run("metrics", func(t *testing.T) {
		config := c.config(c.token("coelan-agent", ""))
		agent, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		testMetrics(cluster{t, c.rest, c.api, c.admin}, agent)
	})
	t.Run("controller", func(t *testing.T) { testControllerCreates(cluster{t, c.rest, c.api, c.admin}) })
	for r, calls := range table {
		for _, call := range calls {
			t.Run(strings.Join([]string{r.verb, r.resource, call.name}, " "), func(t *testing.T) {
				c := cluster{t, c.rest, c.api, c.admin}
				for _, o := range call.have {
					c.make(o)
				}
				const must = "has to be bound to a pod on a node"
				if err := call.do(t.Context(), unbound); !refused(err, must) {
					t.Errorf("with a token that is bound to no pod: %v, want a refusal: %s", err, must)
				}
				err := call.do(t.Context(), worker1)
				if call.denied == "" {
					if err != nil {
						t.Errorf("refused: %v", err)
					}
					return
				}
				if !refused(err, call.denied) {
					t.Errorf("%v, want a refusal: %s", err, call.denied)
				}
				if err := call.do(t.Context(), other); err != nil {
					t.Errorf("refused for others, too: %v", err)
				}
			})
		}
	}
}

func refused(err error, why string) bool {
	return (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) && strings.Contains(err.Error(), "denied request") && strings.Contains(err.Error(), why)
}
