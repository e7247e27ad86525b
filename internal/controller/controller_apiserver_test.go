// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controller_test

import (
	"testing"

	"coelan.io/coelan/internal/apitest"
)

// TestController is everything that the controller does, against a real API server. One is enough
// for all: each test leaves it empty.
func TestController(t *testing.T) {
	api := apitest.Start(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *apitest.API)
	}{
		{"the default objects", testDefaults},
		{"numbers stay", testNumbersStay},
		{"what is used and is deleted", testInUse},
		{"Networks with bad input", testBadNetworks},
		{"users' Ports", testUserPorts},
		{"fixed addresses", testFixedPorts},
		{"Ports with bad input", testBadPorts},
		{"what a node leaves", testGarbage},
		{"addresses of the controller's blocks", testGrants},
		{"FloatingIPs", testFloatingIPs},
		{"FloatingIPs that want the same", testRivalFloatingIPs},
		{"FloatingIPs with bad input", testBadFloatingIPs},
		{"FloatingIPs of Services", testFloatingIPsOfServices},
		{"a quota of FloatingIPs", testFloatingIPQuota},
		{"gateways of Routers", testGateways},
		{"the gateway of the Router default", testDefaultGateway},
		{"gateways with bad input", testBadGateways},
		{"centralized gateways", testCentralizedGateways},
		{"centralized gateways with bad input", testBadCentralizedGateways},
		{"Egresses", testEgresses},
		{"Egresses with bad input", testBadEgresses},
		{"NodeNetworkConfigs", testNodeNetworkConfigs},
		{"a leader is killed", testLeader},
		{"300 Networks", testMany},
		{"addresses of Services", testLoadBalancers},
		{"addresses of Services on external Networks", testLoadBalancerNetworks},
		{"a quota of addresses of Services", testLoadBalancerNetworkQuota},
		{"Services of other load balancers", testOthersLoadBalancers},
		{"pools and Services with bad input", testBadPools},
		{"pools for some namespaces", testPoolNamespaces},
		{"problems of Services are told of once", testToldOnce},
		{"a leader is killed while it gives Services addresses", testBalancerLeader},
		{"TC 1 and TC 4: create a pod in a namespace on a node, and delete it", testTC1AndTC4},
		{"the last pod goes on every way", testLastPod},
		{"leftovers", testLeftovers},
		{"the last pod goes and the next one comes", testComeAndGo},
		{"a Network is made again", testMadeAgain},
		{"isolated namespaces", testIsolated},
		{"namespaces that a Network selects", testSelected}, {"subnets of namespaces", testNamespaceSubnets},
		{"subnets of namespaces are used up", testNamespaceSubnetsUsedUp},
		{"subnets of namespaces on and off", testNamespaceSubnetsOnAndOff},
		{"subnets of namespaces of pools of OpenStack", testGivenSubnetPools},
		{"namespace deletion", testNamespaceDeletion},
		{"policies of all kinds", testPoliciesOfAllKinds},
		{"refused by switches", testRefusedBySwitches},
		{"FloatingIPs and Egresses with OVN", testProgrammedByOVN},
		{"what OVN has, compared", testCheckOfOVN},
		{"FloatingIPs and Egresses with Neutron", testProgrammedByNeutron},
		{"what Neutron has, compared", testCheckOfNeutron},
		{"from Kuryr", testFromKuryr},
		{"load balancers from Kuryr", testBalancersFromKuryr},
		{"named ports", testNamedPorts},
		{"projects of namespaces", testProjects},
		{"networks of OpenStack", testLentNetworks},
		{"Ports of isolated namespaces with OVN", testPortsOfIsolated},
		{"values in their former spelling", testFormerSpelling},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, api) })
	}
}
