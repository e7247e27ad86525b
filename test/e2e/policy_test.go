// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/internal/sandbox"
)

//go:embed testdata/policies.yaml
var policiesManifest string

const policiesNamespace = "policies"

// cast are the pods and hosts of the policies: see testdata/policies.yaml.
type cast struct {
	web1, web2, odd2         place // servers
	client1, client2, other1 place
	friend2                  place // of another namespace
	host1, host2, cp, fabric place
}

var stage cast

// TestPolicies is all tests of policies but that of virtual machines (guests_test.go). Each leaves
// the pods as it found them, without policies.
func TestPolicies(t *testing.T) {
	ctx := within(t, 8*time.Minute)
	if err := world.DefinePolicies(ctx, sandbox.ExperimentalPolicies); err != nil {
		t.Fatal(err)
	}
	apply(ctx, t, policiesManifest)
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "namespace", policiesNamespace, "friends") })
	pod := func(key string) place {
		if err := world.waitReady(ctx, key); err != nil {
			t.Fatal(err)
		}
		return world.pod(ctx, t, key)
	}
	stage = cast{
		web1: pod("policies/web1"), web2: pod("policies/web2"), odd2: pod("policies/odd2"),
		client1: pod("policies/client1"), client2: pod("policies/client2"), other1: pod("policies/other1"),
		friend2: pod("friends/friend2"),
		host1:   world.machine(ctx, t, worker1), host2: world.machine(ctx, t, worker2),
		cp: world.machine(ctx, t, control), fabric: world.machine(ctx, t, "fabric"),
	}
	inOrder(t, []step{
		{"peers and ports", testPolicyPeers},
		{"running streams", testPolicyStreams},
		{"first packets", testPolicyFirstPackets},
		{"own node", testPolicyOwnNode},
		{"named ports", testPolicyNamedPorts},
		{"Services", testPolicyServices},
		{"node ports", testPolicyNodePorts},
		{"tenants", testPolicyTenants},
		{"ClusterNetworkPolicies", testClusterPolicies},
		{"SecurityGroups", testSecurityGroups},
		{"explained", testPolicyExplained},
		{"10,000 addresses", testPolicyManyAddresses},
		{"restarts", testPolicyRestarts},
	})
}

// try is one way of a policy, and whether it is open.
type try struct {
	from place
	to   question
	open bool
}

// web asks a pod's web server.
func web(p place, f family) question {
	return question{corev1.ProtocolTCP, netip.AddrPortFrom(p.address(f), tcpPort)}
}

// udpEcho asks a pod's server over UDP.
func udpEcho(p place, f family) question {
	return question{corev1.ProtocolUDP, netip.AddrPortFrom(p.address(f), udpPort)}
}

// judge waits until all ways of both families are as wanted. What is closed is silent.
func judge(ctx context.Context, t *testing.T, tries func(family) []try) {
	t.Helper()
	var group sync.WaitGroup
	for _, f := range families {
		for _, c := range tries(f) {
			group.Go(func() {
				if c.open {
					c.to.answers(ctx, t, c.from)
					return
				}
				c.to.fails(ctx, t, c.from, silent)
				// On a busy machine an answer may once be late.
				ctx, cancel := context.WithTimeout(ctx, silence)
				defer cancel()
				if answer, err := c.to.ask(ctx, c.from, "hostname"); err == nil {
					t.Errorf("%s asks %s: %s answers", c.from.name, c.to, answer)
				}
			})
		}
	}
	group.Wait()
}

// policy applies a NetworkPolicy of the namespace policies, for as long as the test runs.
func policy(ctx context.Context, t *testing.T, name, spec string) {
	t.Helper()
	policyIn(ctx, t, policiesNamespace, name, spec)
}

func policyIn(ctx context.Context, t *testing.T, namespace, name, spec string) {
	t.Helper()
	apply(ctx, t, fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: %s, namespace: %s}, spec: {%s}}",
		name, namespace, spec))
	t.Cleanup(func() { remove(context.WithoutCancel(ctx), t, "-n", namespace, "networkpolicy", name) })
}

// label sets a pod's label, and the one before at the test's end.
func label(ctx context.Context, t *testing.T, key, name, value, before string) {
	t.Helper()
	namespace, pod := split(key)
	set := func(ctx context.Context, to string) error {
		_, err := world.Kubectl(ctx, "-n", namespace, "label", "--overwrite", "pod", pod, name+"="+to)
		return err
	}
	if err := set(ctx, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set(context.WithoutCancel(ctx), before); err != nil {
			t.Error(err)
		}
	})
}

// testPolicyPeers has a server for some pods of its namespace and for all of another one, on one
// port, until the policy is deleted.
func testPolicyPeers(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	t.Run("policy", func(t *testing.T) {
		policy(ctx, t, "web", "podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}, "+
			"{namespaceSelector: {matchLabels: {team: friends}}}], ports: [{port: 8080}]}]")
		judge(ctx, t, func(f family) []try {
			return []try{
				{stage.client1, web(stage.web1, f), true},
				{stage.client2, web(stage.web1, f), true},
				{stage.friend2, web(stage.web1, f), true},
				{stage.friend2, web(stage.web2, f), true},
				{stage.other1, web(stage.web1, f), false},
				{stage.other1, web(stage.web2, f), false},
				{stage.client1, udpEcho(stage.web1, f), false},
				{stage.client1, udpEcho(stage.web2, f), false},
				{stage.web1, web(stage.web2, f), false},
			}
		})
		t.Run("label", func(t *testing.T) {
			label(ctx, t, "policies/other1", "app", "client", "other")
			label(ctx, t, "policies/client2", "app", "former", "client")
			judge(ctx, t, func(f family) []try {
				return []try{{stage.other1, web(stage.web1, f), true}, {stage.client2, web(stage.web2, f), false}}
			})
		})
		t.Run("block", func(t *testing.T) {
			policy(ctx, t, "block", fmt.Sprintf("podSelector: {matchLabels: {app: web}}, ingress: [{from: ["+
				"{ipBlock: {cidr: 10.244.0.0/16, except: [%s/32]}}, {ipBlock: {cidr: 'fd00:10:244::/56', except: ['%s/128']}}]}]",
				stage.client1.address(ipv4), stage.client1.address(ipv6)))
			judge(ctx, t, func(f family) []try {
				return []try{
					{stage.other1, udpEcho(stage.web1, f), true},
					{stage.other1, udpEcho(stage.web2, f), true},
					{stage.client1, udpEcho(stage.web1, f), false},
					{stage.client1, web(stage.web1, f), true}, // by the other policy
				}
			})
		})
		t.Run("egress", func(t *testing.T) {
			policy(ctx, t, "clients", "podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: "+
				"[{to: [{podSelector: {matchLabels: {server: web2}}}], ports: [{port: 8000, endPort: 8080}]}]")
			judge(ctx, t, func(f family) []try {
				return []try{
					{stage.client1, web(stage.web2, f), true},
					{stage.client2, web(stage.web2, f), true},
					{stage.client1, web(stage.web1, f), false},
					{stage.friend2, web(stage.web1, f), true},
					{stage.client1, question{corev1.ProtocolTCP, netip.AddrPortFrom(outside(f), 80)}, false},
				}
			})
		})
	})
	judge(ctx, t, func(f family) []try {
		return []try{
			{stage.other1, web(stage.web1, f), true},
			{stage.other1, udpEcho(stage.web2, f), true},
			{stage.client1, web(stage.web1, f), true},
		}
	})
}
