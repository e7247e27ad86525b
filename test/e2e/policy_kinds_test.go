// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// clusterPolicy applies a ClusterNetworkPolicy for as long as the test runs.
func clusterPolicy(ctx context.Context, t *testing.T, name, spec string) {
	t.Helper()
	apply(ctx, t, fmt.Sprintf("{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: %s}, spec: {%s}}", name, spec))
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "clusternetworkpolicy", name) })
}

// testClusterPolicies puts the tiers on top of each other: what the administrator denies, leaves to
// the namespaces or allows, and the default where neither decides.
func testClusterPolicies(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	const subject = "subject: {namespaces: {matchLabels: {team: shop}}}"
	const friends = "{namespaces: {matchLabels: {team: friends}}}"
	ways := func(friend, friendUDP, own bool) {
		t.Helper()
		judge(ctx, t, func(f family) []try {
			return []try{
				{stage.friend2, web(stage.web1, f), friend},
				{stage.friend2, web(stage.web2, f), friend},
				{stage.friend2, udpEcho(stage.web1, f), friendUDP},
				{stage.client1, web(stage.web1, f), own},
				{stage.client1, web(stage.web2, f), own},
				{stage.host1, web(stage.web1, f), true}, // its own node, whatever denies
			}
		})
	}
	t.Run("Baseline", func(t *testing.T) {
		clusterPolicy(ctx, t, "default-deny", "tier: Baseline, priority: 10, "+subject+", ingress: [{name: friends, action: Deny, from: ["+friends+"]}]")
		ways(false, false, true)
		t.Run("NetworkPolicy", func(t *testing.T) {
			policy(ctx, t, "web", "podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: friends}}}], ports: [{port: 8080}]}]")
			ways(true, false, false)
			t.Run("Admin", func(t *testing.T) {
				clusterPolicy(ctx, t, "admin", "tier: Admin, priority: 10, "+subject+", ingress: ["+
					"{name: web, action: Deny, from: ["+friends+"], protocols: [{tcp: {destinationPort: {number: 8080}}}]}, "+
					"{name: rest, action: Accept, from: ["+friends+"]}]")
				ways(false, true, false)
				t.Run("Pass", func(t *testing.T) {
					clusterPolicy(ctx, t, "first", "tier: Admin, priority: 5, "+subject+", ingress: [{name: all, action: Pass, from: ["+friends+"]}]")
					ways(true, false, false)
				})
				ways(false, true, false)
			})
		})
	})
	ways(true, true, true)
	t.Run("peers that are not understood", func(t *testing.T) {
		// Domain names are not resolved: a pod that may reach only those reaches nothing.
		clusterPolicy(ctx, t, "names", "tier: Admin, priority: 10, subject: {pods: {namespaceSelector: {matchLabels: {team: shop}}, podSelector: {matchLabels: {app: other}}}}, "+
			"egress: [{name: known, action: Accept, to: [{domainNames: [outside.test]}]}, {name: rest, action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}]")
		judge(ctx, t, func(f family) []try {
			return []try{
				{stage.other1, question{corev1.ProtocolTCP, netip.AddrPortFrom(outside(f), 80)}, false},
				{stage.other1, web(stage.web1, f), false},
				{stage.client1, web(stage.web1, f), true},
			}
		})
	})
	t.Run("nodes", func(t *testing.T) {
		clusterPolicy(ctx, t, "nodes", "tier: Admin, priority: 10, "+subject+", egress: [{name: nodes, action: Deny, to: [{nodes: {matchLabels: "+
			"{kubernetes.io/hostname: worker2}}}]}]")
		at := func(p place, f family) question {
			return question{corev1.ProtocolTCP, netip.AddrPortFrom(p.address(f), 8082)}
		}
		judge(ctx, t, func(f family) []try {
			return []try{
				{stage.client1, at(world.pod(ctx, t, "host1"), f), true},
				{stage.client1, at(stage.host2, f), false},
				{stage.client1, web(stage.web2, f), true},
			}
		})
	})
}

// securityGroup applies a SecurityGroup for as long as the test runs.
func securityGroup(ctx context.Context, t *testing.T, name, rules string) {
	t.Helper()
	apply(ctx, t, fmt.Sprintf("{apiVersion: coelan.io/v1alpha1, kind: SecurityGroup, metadata: {name: %s, namespace: policies}, spec: {rules: [%s]}}", name, rules))
	t.Cleanup(func() {
		remove(context.WithoutCancel(ctx), t, "-n", policiesNamespace, "securitygroups.coelan.io", name)
	})
}

// testSecurityGroups has pods name groups, one of which is there only later.
func testSecurityGroups(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	group := func(key, groups string) {
		namespace, name := split(key)
		set := func(ctx context.Context, value string) {
			if _, err := world.Kubectl(ctx, "-n", namespace, "annotate", "--overwrite", "pod", name, v1alpha1.AnnotationSecurityGroups+value); err != nil {
				t.Error(err)
			}
		}
		set(ctx, "="+groups)
		t.Cleanup(func() { set(context.WithoutCancel(ctx), "-") })
	}
	all := func(direction string) string {
		return fmt.Sprintf("{direction: %s, etherType: IPv4}, {direction: %s, etherType: IPv6}", direction, direction)
	}
	securityGroup(ctx, t, "web", "{direction: Ingress, etherType: IPv4, protocol: tcp, portRangeMin: 8080, portRangeMax: 8080, remoteGroup: clients}, "+
		"{direction: Ingress, etherType: IPv6, protocol: '6', portRangeMin: 8000, portRangeMax: 8090, remoteGroup: policies/clients}")
	group("policies/web1", "web")
	group("policies/client2", "clients")
	// The group of its clients is not there yet.
	judge(ctx, t, func(f family) []try {
		return []try{
			{stage.client2, web(stage.web1, f), false},
			{stage.client2, web(stage.web2, f), false},
			{stage.other1, web(stage.web2, f), true},
			{stage.host1, web(stage.web1, f), true},
		}
	})
	securityGroup(ctx, t, "clients", all("Egress"))
	judge(ctx, t, func(f family) []try {
		return []try{
			{stage.client2, web(stage.web1, f), true},
			{stage.client2, udpEcho(stage.web1, f), false},
			{stage.client2, web(stage.web2, f), true}, // of no group
			{stage.other1, web(stage.web1, f), false},
			{stage.web1, web(stage.web2, f), false}, // the group says nothing of egress
			{stage.other1, web(stage.client2, f), false},
		}
	})
	t.Run("with a NetworkPolicy", func(t *testing.T) { // both have to allow
		policy(ctx, t, "web", "podSelector: {matchLabels: {server: web1}}, policyTypes: [Ingress]")
		judge(ctx, t, func(f family) []try { return []try{{stage.client2, web(stage.web1, f), false}} })
	})
	t.Run("changed", func(t *testing.T) {
		securityGroup(ctx, t, "web", all("Ingress")+", {direction: Egress, etherType: IPv4, remoteIPPrefix: 10.244.0.0/16}, "+
			"{direction: Egress, etherType: IPv6, remoteIPPrefix: 'fd00:10:244::/56'}")
		judge(ctx, t, func(f family) []try {
			return []try{
				{stage.other1, web(stage.web1, f), true},
				{stage.client2, udpEcho(stage.web1, f), true},
				{stage.web1, web(stage.web2, f), true},
				{stage.web1, question{corev1.ProtocolTCP, netip.AddrPortFrom(outside(f), 80)}, false},
			}
		})
		sg := named(&v1alpha1.SecurityGroup{}, "policies/web")
		if err := wait(ctx, sg, func(g *v1alpha1.SecurityGroup) error {
			if g.Status.Nodes != 1 || g.Status.ProgrammedNodes != 1 {
				return fmt.Errorf("status %+v, want one node of one", g.Status)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// testPolicyExplained asks which policy allowed or denied something: trace, counters, the log of an
// agent, and the state of policies.
func testPolicyExplained(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	policy(ctx, t, "web-some", "podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: nobody}}}]}, "+
		"{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 8080}]}]")
	policyIn(ctx, t, "red", "web-deny", "podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]")
	clusterPolicy(ctx, t, "no-friends", "tier: Admin, priority: 10, subject: {namespaces: {matchLabels: {team: shop}}}, ingress: ["+
		"{name: pass, action: Pass, from: [{pods: {namespaceSelector: {matchLabels: {team: friends}}, podSelector: {matchLabels: {app: none}}}}]}, "+
		"{name: deny, action: Deny, from: [{namespaces: {matchLabels: {team: friends}}}]}]")
	both := frontService(ctx, t, "both", map[string]string{"server": "web2"}, asItIs)
	judge(ctx, t, func(f family) []try {
		return []try{
			{stage.client1, web(stage.web2, f), true}, {stage.other1, web(stage.web1, f), false}, {stage.other1, web(stage.web2, f), false}, {stage.friend2, web(stage.web1, f), false},
			{world.tenant(ctx, t, "red/client1"), web(world.tenant(ctx, t, "red/web2"), f), false},
		}
	})
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"trace", "policies/client1", "policies/web2:8080"}, []string{"NetworkPolicy policies/web-some, rule 2", "delivered to policies/web2"}},
		{[]string{"trace", "policies/other1", "policies/web2:8080"}, []string{"node worker2", "denied", "NetworkPolicy policies/web-some"}},
		{[]string{"trace", "policies/other1", "policies/web1:8080", "--ipv6"}, []string{"node worker1", "denied", "NetworkPolicy policies/web-some"}},
		{[]string{"trace", "policies/other1", clusterIP(t, both, ipv4, corev1.ProtocolTCP).at.String()}, []string{
			"service/policies/both", "denied", "NetworkPolicy policies/web-some",
		}},
		{[]string{"trace", "friends/friend2", "policies/web1:8080"}, []string{"denied by ClusterNetworkPolicy no-friends, rule 2"}},
		{[]string{"trace", "red/client1", "red/web2:8080"}, []string{"denied", "NetworkPolicy red/web-deny"}},
		{[]string{"get", "policies", "-n", "policies"}, []string{"POLICY", "NetworkPolicy policies/web-some", "2 of 2"}},
		{[]string{"get", "policystats"}, []string{"POLICY", "ClusterNetworkPolicy no-friends", "NetworkPolicy policies/web-some"}},
		{[]string{"get", "policystats", "--node", worker2}, []string{"NetworkPolicy policies/web-some"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			out, err := world.coelan(ctx, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			rest := out
			for _, text := range c.want {
				_, after, found := strings.Cut(rest, text)
				if !found {
					t.Fatalf("%q is missing, or not where it should be, in:\n%s", text, out)
				}
				rest = after
			}
		})
	}
	t.Run("log of what is denied", func(t *testing.T) {
		ctx := within(t, learning)
		err := eventually(ctx, func() error {
			out, err := world.Kubectl(ctx, "-n", agents, "logs", "-l", "app.kubernetes.io/component=agent", "--tail=500", "--since=2m")
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "policies/other1") && strings.Contains(line, "policies/web1") && strings.Contains(line, "policies/web-some") {
					return nil
				}
			}
			return errors.Join(err, errors.New("no line names the pods and the policy"))
		})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("condition", func(t *testing.T) {
		ctx := within(t, learning)
		err := eventually(ctx, func() error {
			out, err := world.Kubectl(ctx, "get", "clusternetworkpolicy", "no-friends", "-o", "json")
			if err != nil {
				return err
			}
			var policy struct {
				Status struct{ Conditions []metav1.Condition }
			}
			if err := json.Unmarshal(out, &policy); err != nil {
				return err
			}
			for _, c := range policy.Status.Conditions {
				if c.Type == v1alpha1.ConditionProgrammed && c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "2 of 2 nodes") {
					return nil
				}
			}
			return fmt.Errorf("conditions %+v", policy.Status.Conditions)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// testPolicyManyAddresses has a policy that names 10,000 addresses: what they allow is
// allowed, and nothing else.
func testPolicyManyAddresses(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	var blocks strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&blocks, "{ipBlock: {cidr: 198.%d.%d.%d/32}}, ", 18+i>>16, i>>8&255, i&255)
	}
	last := stage.client1.address(ipv4)
	policy(ctx, t, "many", fmt.Sprintf("podSelector: {matchLabels: {app: web}}, ingress: [{from: [%s{ipBlock: {cidr: %s/32}}]}]", &blocks, last))
	// It is not held up.
	policy(ctx, t, "odd", "podSelector: {matchLabels: {app: odd}}, policyTypes: [Ingress]")
	judge(ctx, t, func(f family) []try {
		return []try{
			{stage.client1, web(stage.web1, f), f == ipv4},
			{stage.client1, web(stage.web2, f), f == ipv4},
			{stage.other1, web(stage.web1, f), false},
			{stage.other1, web(stage.web2, f), false},
			{stage.other1, question{corev1.ProtocolTCP, netip.AddrPortFrom(stage.odd2.address(f), 8082)}, false},
		}
	})
}
