// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// testPolicyOwnNode closes servers and a client. Their own node's processes still reach the
// servers, and the client its node: no container is restarted. Other nodes are peers as any others.
func testPolicyOwnNode(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	before := world.containers(ctx, t)
	policy(ctx, t, "closed", "podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]")
	policy(ctx, t, "clients", "podSelector: {matchLabels: {app: client}}, policyTypes: [Egress]")
	node := world.pod(ctx, t, "host1") // a server in the first worker's network
	at := func(f family) question {
		return question{corev1.ProtocolTCP, netip.AddrPortFrom(node.address(f), 8082)}
	}
	began := time.Now()
	judge(ctx, t, func(f family) []try {
		return []try{
			{stage.host1, web(stage.web1, f), true},
			{stage.host2, web(stage.web2, f), true},
			{stage.host1, web(stage.web2, f), false},
			{stage.host2, web(stage.web1, f), false},
			{stage.cp, web(stage.web1, f), false},
			{stage.other1, web(stage.web1, f), false},
			{stage.client1, at(f), true},
			{stage.client2, at(f), false},
			{stage.other1, at(f), true},
		}
	})
	t.Run("other nodes", func(t *testing.T) {
		policy(ctx, t, "nodes", fmt.Sprintf("podSelector: {matchLabels: {server: web1}}, ingress: [{from: ["+
			"{ipBlock: {cidr: %s/32}}, {ipBlock: {cidr: '%s/128'}}]}]",
			world.nodeAmongPods(ctx, t, worker2, ipv4), world.nodeAmongPods(ctx, t, worker2, ipv6)))
		judge(ctx, t, func(f family) []try {
			return []try{{stage.host2, web(stage.web1, f), true}, {stage.cp, web(stage.web1, f), false}}
		})
	})
	// Probes come every other second; three that fail in a row restart a container.
	probed := time.NewTimer(time.Until(began.Add(8 * time.Second)))
	defer probed.Stop()
	select {
	case <-probed.C:
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	after := world.containers(ctx, t)
	for _, key := range []string{"policies/web1", "policies/web2"} {
		if name := key + "/agnhost"; before[name] != after[name] {
			t.Errorf("container %s was %s, is %s", name, before[name], after[name])
		}
		if _, pod := split(key); !ready(world.placed(ctx, t, key)) {
			t.Errorf("pod %s is not ready any more", pod)
		}
	}
}

// testPolicyNamedPorts allows a port by its name, which is another number for each pod.
func testPolicyNamedPorts(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	odd := func(f family, p corev1.Protocol, port uint16) question {
		return question{p, netip.AddrPortFrom(stage.odd2.address(f), port)}
	}
	t.Run("ingress", func(t *testing.T) {
		policy(ctx, t, "named", "podSelector: {matchExpressions: [{key: app, operator: In, values: [web, odd]}]}, ingress: [{ports: [{port: http}]}]")
		judge(ctx, t, func(f family) []try {
			return []try{
				{stage.client1, web(stage.web1, f), true},
				{stage.client1, web(stage.web2, f), true},
				{stage.client1, odd(f, corev1.ProtocolTCP, 8082), true},
				// No process listens there, but the client must not see that.
				{stage.client1, odd(f, corev1.ProtocolTCP, 8080), false},
				{stage.client1, udpEcho(stage.web1, f), false},
				{stage.client1, odd(f, corev1.ProtocolUDP, 8083), false},
			}
		})
	})
	t.Run("egress", func(t *testing.T) {
		policy(ctx, t, "named", "podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}], "+
			"ports: [{port: echo, protocol: UDP}]}]")
		judge(ctx, t, func(f family) []try {
			return []try{
				{stage.client1, udpEcho(stage.web2, f), true},
				{stage.client1, odd(f, corev1.ProtocolUDP, 8083), true},
				{stage.client1, web(stage.web2, f), false},
				{stage.client1, odd(f, corev1.ProtocolTCP, 8082), false},
			}
		})
	})
}

// frontService is a Service of the servers with the label, port 80 of which is their
// port 8080 or 8081.
func frontService(ctx context.Context, t *testing.T, name string, selector map[string]string, change func(*corev1.ServiceSpec)) *corev1.Service {
	t.Helper()
	s := of(dualService(name, ""), change)
	s.Namespace, s.Spec.Selector = policiesNamespace, selector
	return makeService(ctx, t, s)
}

func asItIs(*corev1.ServiceSpec) {}

// testPolicyServices has policies see the endpoint that was chosen and its port, and the client
// with its own address.
func testPolicyServices(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	both := frontService(ctx, t, "both", map[string]string{"app": "web"}, asItIs)
	first := frontService(ctx, t, "first", map[string]string{"server": "web1"}, asItIs)
	second := frontService(ctx, t, "second", map[string]string{"server": "web2"}, asItIs)
	tcp := func(s *corev1.Service, f family) question { return clusterIP(t, s, f, corev1.ProtocolTCP) }
	t.Run("egress", func(t *testing.T) {
		policy(ctx, t, "clients", "podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], "+
			"egress: [{to: [{podSelector: {matchLabels: {server: web1}}}], ports: [{port: 8080}]}]")
		judge(ctx, t, func(f family) []try {
			return []try{
				{stage.client1, tcp(first, f), true},
				{stage.client2, tcp(first, f), true},
				{stage.client1, tcp(second, f), false},
				{stage.client1, clusterIP(t, first, f, corev1.ProtocolUDP), false},
				{stage.other1, tcp(second, f), true},
			}
		})
	})
	t.Run("a Service's address means nothing", func(t *testing.T) {
		var blocks string
		for _, f := range families {
			a := tcp(first, f).at.Addr()
			blocks += fmt.Sprintf("{ipBlock: {cidr: '%s'}}, ", netip.PrefixFrom(a, a.BitLen()))
		}
		policy(ctx, t, "clients", "podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: ["+blocks+"]}]")
		judge(ctx, t, func(f family) []try {
			return []try{{stage.client1, tcp(first, f), false}, {stage.client2, tcp(first, f), false}}
		})
	})
	t.Run("ingress", func(t *testing.T) {
		policy(ctx, t, "servers", "podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 8080}]}]")
		judge(ctx, t, func(f family) []try {
			return []try{
				{stage.client1, tcp(both, f), true},
				{stage.client2, tcp(both, f), true},
				{stage.other1, tcp(both, f), false},
				{stage.web1, tcp(first, f), true}, // itself
				{stage.web1, tcp(second, f), false},
				{stage.host1, tcp(first, f), true}, // its own node
				{stage.host2, tcp(first, f), false},
			}
		})
		for _, f := range families {
			tcp(both, f).serves(ctx, t, stage.client1, "web1", "web2")
			tcp(both, f).seen(ctx, t, stage.client1, stage.client1.address(f))
		}
	})
}

// testPolicyNodePorts has clients outside of the cluster: policies see them with the policy Local,
// else the node that they came to.
func testPolicyNodePorts(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	local := frontService(ctx, t, "local", map[string]string{"app": "web"}, func(s *corev1.ServiceSpec) {
		nodePort(s)
		s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	masked := frontService(ctx, t, "masked", map[string]string{"server": "web1"}, nodePort)
	at := func(s *corev1.Service, node place, f family) question {
		return atNode(t, s, node, f, corev1.ProtocolTCP)
	}
	from := func(addresses func(family) netip.Addr) string {
		return fmt.Sprintf("podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: %s/32}}, {ipBlock: {cidr: '%s/128'}}]}]",
			addresses(ipv4), addresses(ipv6))
	}
	t.Run("the client", func(t *testing.T) {
		policy(ctx, t, "web", from(nodesGateway)) // which is the fabric
		judge(ctx, t, func(f family) []try {
			return []try{
				{stage.fabric, at(local, stage.host1, f), true},
				{stage.fabric, at(local, stage.host2, f), true},
				{stage.fabric, at(masked, stage.host1, f), false},
				{stage.fabric, at(masked, stage.host2, f), false},
				{stage.other1, at(local, stage.host1, f), false},
			}
		})
	})
	t.Run("the node", func(t *testing.T) {
		policy(ctx, t, "web", from(func(f family) netip.Addr { return world.nodeAmongPods(ctx, t, worker2, f) }))
		judge(ctx, t, func(f family) []try {
			return []try{
				{stage.fabric, at(masked, stage.host2, f), true},
				// Not exempt, although the address is that of the server's own node.
				{stage.fabric, at(masked, stage.host1, f), false},
				{stage.fabric, at(local, stage.host1, f), false},
			}
		})
	})
	judge(ctx, t, func(f family) []try { return []try{{stage.fabric, at(masked, stage.host1, f), true}} })
}

// testPolicyTenants has a policy of a tenant. Another tenant has the same addresses.
func testPolicyTenants(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	red1, redWeb1, redWeb2 := world.tenant(ctx, t, "red/client1"), world.tenant(ctx, t, "red/web1"), world.tenant(ctx, t, "red/web2")
	blue1, blue2 := world.tenant(ctx, t, "blue/shop1"), world.tenant(ctx, t, "blue/shop2")
	service := func(f family) question {
		return question{corev1.ProtocolTCP, netip.AddrPortFrom(world.serviceAddress(ctx, t, "red/web", f), 80)}
	}
	for _, c := range []struct {
		name, spec string
		open       bool
		// service says whether it is open by way of a Service: its clients
		// have the cluster's addresses.
		service bool
	}{
		{"closed", "podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]", false, false},
		{"to its namespace", "podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]", true, true},
		{"to its subnet", "podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 10.50.0.0/16}}, {ipBlock: {cidr: 'fd00:50::/64'}}]}]", true, false},
		{"to the other tenant", "podSelector: {matchLabels: {app: web}}, ingress: [{from: [{namespaceSelector: {matchLabels: {tenant: blue}}}]}]", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			policyIn(ctx, t, "red", "web", c.spec)
			judge(ctx, t, func(f family) []try {
				return []try{
					{red1, web(redWeb1, f), c.open},
					{red1, web(redWeb2, f), c.open},
					{red1, service(f), c.service},
					{blue1, web(blue2, f), true},
					{blue2, web(blue1, f), true},
					{stage.host1, web(world.pod(ctx, t, "red/web1"), f), true}, // its own node
					{stage.host2, web(world.pod(ctx, t, "red/web1"), f), false},
				}
			})
		})
	}
	t.Run("egress to all", func(t *testing.T) { // a Service of the default network, and no others
		policyIn(ctx, t, "red", "clients", "podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: "+
			"{matchLabels: {kubernetes.io/metadata.name: e2e}}}]}]")
		judge(ctx, t, func(f family) []try {
			return []try{
				{red1, question{corev1.ProtocolTCP, netip.AddrPortFrom(world.serviceAddress(ctx, t, "web2", f), 80)}, true},
				{red1, web(redWeb2, f), false},
				{red1, service(f), false},
				{blue1, web(blue2, f), true},
			}
		})
	})
	judge(ctx, t, func(f family) []try { return []try{{red1, web(redWeb2, f), true}, {red1, service(f), true}} })
}
