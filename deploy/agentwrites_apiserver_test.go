// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package deploy

import "strings"

// call is one write with a token. Each call has objects of its own.
type call struct {
	name string
	// have are the objects that are there before, with their status.
	have []object
	// do is what the holder of the token tries.
	do write
	// denied is a part of the refusal; empty: the write is accepted.
	denied string
}

// right is a verb of a resource, as the rights have them.
type right struct{ group, resource, verb string }

// writes are what the agent of worker1 tries, for every right that changes something: for its own
// node, which is accepted, and beyond.
func writes() map[right][]call {
	own, other := "worker1", "worker2"
	elsewhere := "BoundElsewhere: it is bound on node worker2, and an interface for it is on node "
	bound := map[string]any{"phase": "Bound", "node": own, "boundTime": "2026-01-02T03:04:05Z", "lastError": nil}
	released := map[string]any{"phase": "Ready", "node": nil, "boundTime": nil, "lastError": nil}
	podStatus := map[string]any{
		"phase": "Bound", "node": own, "mac": "0a:58:0a:01:00:07", "addresses": []any{"10.1.0.7"}, "nodeAddresses": []any{"10.244.1.7"},
		"boundTime": "2026-01-02T03:04:05Z",
	}
	lease := map[string]any{"lease": map[string]any{
		"hostName": "db", "addresses": []any{"10.1.0.8"}, "renewTime": "2026-01-02T03:04:05Z", "expireTime": "2026-01-03T03:04:05Z",
	}}
	leased := func(o object) object { return with(o, lease["lease"], "status", "lease") }
	complaint := with(userPort("c7", "", other), elsewhere+own, "status", "lastError")
	othersComplaint := with(userPort("c8", "", other), elsewhere+"worker3", "status", "lastError")
	return map[right][]call{
		{"", "pods/status", "patch"}: {
			{"annotations of its own pod", []object{pod("p1", own)}, patch(pod("p1", own), annotations(map[string]any{
				statusKey: "[]", "k8s.plugin.opnfv.org/ovnInterfaces": "[]"}), "status"), ""},
			{"annotations of another node's pod", []object{pod("p2", other)}, patch(pod("p2", other), annotations(map[string]any{
				statusKey: "[]"}), "status"), "pods of its own node only"},
			{"annotations of a pod that has no node", []object{pod("p3", "")}, patch(pod("p3", ""), annotations(map[string]any{
				statusKey: "[]"}), "status"), "pods of its own node only"},
			{"another annotation", []object{pod("p4", own)}, patch(pod("p4", own), annotations(map[string]any{
				statusKey: "[]", "coelan.io/security-groups": "admins"}), "status"), "no annotations of a pod but"},
			{"change an annotation", []object{pod("p5", own)}, patch(pod("p5", own), annotations(map[string]any{
				"example.org/kept": "no"}), "status"), "no annotations of a pod but"},
			{"remove an annotation", []object{pod("p6", own)}, patch(pod("p6", own), annotations(map[string]any{
				"example.org/kept": nil}), "status"), "no annotations of a pod but"},
			{"labels", []object{pod("p7", own)}, patch(pod("p7", own), map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "front"}}}, "status"), "nothing of a pod but annotations"},
			{"finalizers", []object{pod("p8", own)}, patch(pod("p8", own), map[string]any{
				"metadata": map[string]any{"finalizers": []any{"example.org/stay"}}}, "status"), "nothing of a pod but annotations"},
			{"podIPs", []object{pod("p9", own)}, patchStatus(pod("p9", own), map[string]any{
				"podIP": "10.244.9.66", "podIPs": []any{map[string]any{"ip": "10.244.9.66"}}}), "nothing of a pod but annotations"},
			{"phase", []object{pod("p10", own)}, patchStatus(pod("p10", own), map[string]any{"phase": "Failed"}), "nothing of a pod but annotations"},
			{"conditions", []object{pod("p11", own)}, patchStatus(pod("p11", own), map[string]any{
				"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}), "nothing of a pod but annotations"},
		},
		{"", "nodes/status", "patch"}: {
			{"the MTU of its own node", nil, patch(node(own), annotations(map[string]any{mtuKey: "1450"}), "status"), ""},
			{"no MTU of its own node", nil, patch(node(own), annotations(map[string]any{mtuKey: nil}), "status"), ""},
			{"the MTU of another node", nil, patch(node(other), annotations(map[string]any{mtuKey: "1280"}), "status"), "its own node only"},
			{"what is no MTU", nil, patch(node(own), annotations(map[string]any{mtuKey: "-1"}), "status"), "a number of bytes"},
			{"its physical networks", nil, patch(node(own), annotations(map[string]any{
				mtuKey: "1450", uplinkKey: "floor2,Office_1.a"}), "status"), ""},
			{"that it has no physical networks", nil, patch(node(own), annotations(map[string]any{uplinkKey: ""}), "status"), ""},
			{"the physical networks of another node", nil, patch(node(other), annotations(map[string]any{
				uplinkKey: "office"}), "status"), "its own node only"},
			{"a long configuration", nil, patch(node(own), annotations(map[string]any{configKey: strings.Repeat("x", 4097)}), "status"),
				"at most 4096 characters"},
			{"the configuration of its own node", nil, patch(node(own), annotations(map[string]any{configKey: "{}"}), "status"), ""},
			{"the configuration of another node", nil, patch(node(other), annotations(map[string]any{configKey: "{}"}), "status"),
				"its own node only"},
			{"what are no physical networks", nil, patch(node(own), annotations(map[string]any{
				uplinkKey: "office, lab"}), "status"), "names of physical networks"},
			{"another annotation of its node", nil, patch(node(own), annotations(map[string]any{
				"example.org/other": "yes"}), "status"), "no annotations of a node but"},
			{"labels of its node", nil, patch(node(own), map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"node-role.kubernetes.io/control-plane": ""}}}, "status"), "nothing of a node but"},
			{"finalizers of its node", nil, patch(node(own), map[string]any{
				"metadata": map[string]any{"finalizers": []any{"example.org/stay"}}}, "status"), "nothing of a node but"},
			{"addresses of its node", nil, patchStatus(node(own), map[string]any{
				"addresses": []any{map[string]any{"type": "InternalIP", "address": "192.0.2.66"}}}), "nothing of a node but"},
			{"conditions of its node", nil, patchStatus(node(own), map[string]any{
				"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}), "nothing of a node but"},
		},
		{"coelan.io", "ports", "create"}: {
			{"of its own pod", nil, create(podPort("n1", own)), ""},
			{"of a machine that names none", nil, create(dynamicPort("n8", own)), ""},
			{"of another node's machine", nil, create(dynamicPort("n9", other)), "own node's pods and machines only"},
			{"of a machine, with an owner", nil, create(with(dynamicPort("n10", own), []any{map[string]any{
				"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "another"}}, "metadata", "ownerReferences")), "no owner but its pod"},
			{"of a machine, without the label", nil, create(with(dynamicPort("n11", own), map[string]any{}, "metadata", "labels")), "has the label"},
			{"of another node's pod", nil, create(podPort("n2", other)), "own node's pods and machines only"},
			{"for no node", nil, create(with(podPort("n3", own), "", "spec", "node")), "own node's pods and machines only"},
			{"of a user", nil, create(userPort("n4", own, "")), "Ports of users"},
			{"without the label", nil, create(with(podPort("n5", own), map[string]any{}, "metadata", "labels")), "has the label"},
			{"with another owner", nil, create(with(podPort("n6", own), []any{map[string]any{
				"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "another"}}, "metadata", "ownerReferences")), "no owner but its pod"},
			{"with a finalizer", nil, create(with(podPort("n7", own), []any{"example.org/stay"}, "metadata", "finalizers")), "no finalizers"},
		},
		{"coelan.io", "ports", "delete"}: {
			{"of its own pod", []object{podPort("d1", own)}, remove(podPort("d1", own)), ""},
			{"of its own machine", []object{dynamicPort("d4", own)}, remove(dynamicPort("d4", own)), ""},
			{"of its own pod, given to another node", []object{with(podPort("d6", own), other, "spec", "node")},
				remove(podPort("d6", own)), ""},
			{"of another node's machine", []object{dynamicPort("d5", other)}, remove(dynamicPort("d5", other)), "own node's pods and machines only"},
			{"of another node's pod", []object{podPort("d2", other)}, remove(podPort("d2", other)), "own node's pods and machines only"},
			{"of a user", []object{userPort("d3", own, own)}, remove(userPort("d3", "", "")), "Ports of users"},
		},
		{"coelan.io", "ports/status", "patch"}: {
			{"of its own pod", []object{podPort("s1", own)}, patchStatus(podPort("s1", own), podStatus), ""},
			{"of its own machine", []object{dynamicPort("s1m", own)}, patchStatus(dynamicPort("s1m", own), podStatus), ""},
			{"of another node's machine", []object{dynamicPort("s2m", other)}, patchStatus(dynamicPort("s2m", other), podStatus), "that another node has bound"},
			{"of a pod whose Port is new", []object{without(podPort("s2", own), "status")}, patchStatus(podPort("s2", own), podStatus), ""},
			{"of another node's pod", []object{podPort("s3", other)}, patchStatus(podPort("s3", other), podStatus), "that another node has bound"},
			{"addresses of another node's pod", []object{podPort("s4", other)}, patchStatus(podPort("s4", other), map[string]any{
				"addresses": []any{"10.1.0.66"}}), "that another node has bound"},
			{"the last error of another node's pod", []object{podPort("s5", other)}, patchStatus(podPort("s5", other), map[string]any{
				"lastError": elsewhere + own}), "into other nodes' Ports only"},
			{"its own pod's Port bound to another node", []object{podPort("s6", own)}, patchStatus(podPort("s6", own), map[string]any{
				"node": other}), "to its own node only"},

			{"bind a free Port", []object{userPort("b1", "", "")}, patchStatus(userPort("b1", "", ""), bound), ""},
			{"bind a Port that is for its node", []object{userPort("b2", own, "")}, patchStatus(userPort("b2", "", ""), bound), ""},
			{"bind a Port that is for another node", []object{userPort("b3", other, "")}, patchStatus(userPort("b3", "", ""), bound),
				"for another node"},
			{"bind a Port that another node has", []object{userPort("b4", "", other)}, patchStatus(userPort("b4", "", ""), bound),
				"that another node has bound"},
			{"bind a free Port to another node", []object{userPort("b5", "", "")}, patchStatus(userPort("b5", "", ""), map[string]any{
				"phase": "Bound", "node": other}), "to its own node only"},
			{"bind again what it has", []object{userPort("b6", "", own)}, patchStatus(userPort("b6", "", ""), bound), ""},
			{"release", []object{userPort("r1", "", own)}, patchStatus(userPort("r1", "", ""), released), ""},
			{"release a Port that is for another node now", []object{userPort("r2", other, own)},
				patchStatus(userPort("r2", "", ""), released), ""},
			{"release a Port that another node has", []object{userPort("r3", "", other)}, patchStatus(userPort("r3", "", ""), released),
				"that another node has bound"},
			{"hand its Port to another node", []object{userPort("r4", "", own)}, patchStatus(userPort("r4", "", ""), map[string]any{
				"node": other}), "to its own node only"},
			{"addresses of a user's Port", []object{userPort("b7", "", own)}, patchStatus(userPort("b7", "", ""), map[string]any{
				"addresses": []any{"10.1.0.66"}}), "controller's to write"},
			{"MAC of a user's Port", []object{userPort("b8", "", own)}, patchStatus(userPort("b8", "", ""), map[string]any{
				"mac": "0a:58:0a:01:00:66"}), "controller's to write"},
			{"conditions of a user's Port", []object{userPort("b9", "", own)}, patchStatus(userPort("b9", "", ""),
				granted("True", "m")), "controller's to write"},
			{"phase of a user's Port", []object{userPort("b10", "", "")}, patchStatus(userPort("b10", "", ""), map[string]any{
				"phase": "Failed"}), "controller's to write"},
			{"that an address is taken", []object{userPort("c1", "", "")}, patchStatus(userPort("c1", "", ""), map[string]any{
				"lastError": "AddressTaken: it is"}), ""},
			{"that it has an interface for another node's Port", []object{userPort("c2", "", other)},
				patchStatus(userPort("c2", "", ""), map[string]any{"lastError": elsewhere + own}), ""},
			{"that it has an interface for a Port for another node", []object{userPort("c3", other, "")},
				patchStatus(userPort("c3", "", ""), map[string]any{"lastError": elsewhere + own}), ""},
			{"that a third node has an interface", []object{userPort("c4", "", other)},
				patchStatus(userPort("c4", "", ""), map[string]any{"lastError": elsewhere + "worker3"}), "into other nodes' Ports only"},
			{"another error of another node's Port", []object{userPort("c5", "", other)},
				patchStatus(userPort("c5", "", ""), map[string]any{"lastError": "AddressTaken: it is"}), "into other nodes' Ports only"},
			{"when another node has bound a Port", []object{userPort("c6", "", other)}, patchStatus(userPort("c6", "", ""),
				map[string]any{"boundTime": "2026-02-02T03:04:05Z"}), "that another node has bound"},
			{"the lease of its own Port", []object{userPort("l1", "", own)}, patchStatus(userPort("l1", "", ""), lease), ""},
			{"that its own Port has no lease any more", []object{leased(userPort("l2", "", own))},
				patchStatus(userPort("l2", "", ""), map[string]any{"lease": nil}), ""},
			{"a lease without a host name", []object{userPort("l8", "", own)}, patchStatus(userPort("l8", "", ""), map[string]any{
				"lease": map[string]any{"hostName": nil, "addresses": []any{"10.1.0.8"}}}), ""},
			{"the lease of its own pod's Port", []object{podPort("l3", own)}, patchStatus(podPort("l3", own), lease), ""},
			{"the lease of a Port that another node has", []object{userPort("l4", "", other)}, patchStatus(userPort("l4", "", ""), lease),
				"that another node has bound"},
			{"that a Port that another node has has no lease", []object{leased(userPort("l5", "", other))},
				patchStatus(userPort("l5", "", ""), map[string]any{"lease": nil}), "that another node has bound"},
			{"the lease of a Port that is for another node", []object{userPort("l6", other, "")}, patchStatus(userPort("l6", "", ""), lease),
				"for another node"},
			{"the lease of another node's pod", []object{podPort("l7", other)}, patchStatus(podPort("l7", other), lease),
				"that another node has bound"},
			{"take back that it has an interface", []object{complaint}, patchStatus(complaint, map[string]any{"lastError": nil}), ""},
			{"take back what another node has said", []object{othersComplaint}, patchStatus(othersComplaint, map[string]any{"lastError": nil}),
				"into other nodes' Ports only"},
		},
		{"coelan.io", "addressblocks", "create"}: {
			{"of its own node", nil, create(block("blue-10-1-1-0-26", "10.1.1.0/26", own, "")), ""},
			{"of its own node, IPv6", nil, create(block("blue-fd00-0000-0000-0000-0000-0000-0000-0000-122", "fd00::/122", own, "")), ""},
			{"an address for a Port", nil, create(block("blue-10-1-0-9-32", "10.1.0.9/32", own, tenant+"/n1")), ""},
			{"of another node", nil, create(block("blue-10-1-1-64-26", "10.1.1.64/26", other, "")), "own node only"},
			{"of the controller", nil, create(block("blue-10-1-1-192-26", "10.1.1.192/26", "", "")), "own node only"},
			{"of a FloatingIP", nil, create(with(block("blue-10-1-0-10-32", "10.1.0.10/32", "", ""), tenant+"/web", "spec", "floatingIP")),
				"own node only"},
			{"by another name", nil, create(block("blue-10-1-1-64-27", "10.1.1.64/26", own, "")), "the name of an AddressBlock"},
			{"by the name of another prefix", nil, create(block("blue-10-1-1-128-26", "10.1.1.64/26", own, "")), "the name of an AddressBlock"},
			{"by the name of another Network's", nil, create(block("red-10-1-1-64-26", "10.1.1.64/26", own, "")), "the name of an AddressBlock"},
			{"with a finalizer", nil, create(with(block("blue-10-1-2-0-26", "10.1.2.0/26", own, ""), []any{"example.org/stay"},
				"metadata", "finalizers")), "no finalizers"},
		},
		{"coelan.io", "addressblocks", "delete"}: {
			{"of its own node", []object{block("blue-10-2-1-0-26", "10.2.1.0/26", own, "")}, remove(block("blue-10-2-1-0-26", "", "", "")), ""},
			{"of another node", []object{block("blue-10-2-1-64-26", "10.2.1.64/26", other, "")}, remove(block("blue-10-2-1-64-26", "", "", "")), "own node only"},
			{"of the controller", []object{block("blue-10-2-1-128-26", "10.2.1.128/26", "", "")}, remove(block("blue-10-2-1-128-26", "", "", "")), "own node only"},
			{"of a FloatingIP", []object{with(block("blue-10-2-0-10-32", "10.2.0.10/32", "", ""), tenant+"/web", "spec", "floatingIP")},
				remove(block("blue-10-2-0-10-32", "", "", "")), "own node only"},
		},
		{"coelan.io", "addressblocks/status", "patch"}: {
			{"what is used of its own", []object{block("blue-10-3-1-0-26", "10.3.1.0/26", own, "")},
				patchStatus(block("blue-10-3-1-0-26", "", "", ""), map[string]any{"used": 3}), ""},
			{"what is used of another node's", []object{block("blue-10-3-1-64-26", "10.3.1.64/26", other, "")},
				patchStatus(block("blue-10-3-1-64-26", "", "", ""), map[string]any{"used": 3}), "own node's AddressBlocks only"},
			{"grant another node's claim", []object{block("blue-10-3-0-1-32", "10.3.0.1/32", other, "a/b")},
				patchStatus(block("blue-10-3-0-1-32", "", "", ""), granted("True", "node worker1, which has the block, does not hand it out")), ""},
			{"grant the controller's claim", []object{block("blue-10-3-0-2-32", "10.3.0.2/32", "", "a/b")},
				patchStatus(block("blue-10-3-0-2-32", "", "", ""), granted("True", "node worker1, which has the block, does not hand it out")), ""},
			{"grant a FloatingIP's claim", []object{with(block("blue-10-3-0-12-32", "10.3.0.12/32", "", ""), tenant+"/web", "spec", "floatingIP")},
				patchStatus(block("blue-10-3-0-12-32", "", "", ""), granted("True", "node worker1, which has the block, does not hand it out")), ""},
			{"grant a FloatingIP's claim that another node is asked about",
				[]object{with(with(block("blue-10-3-0-13-32", "10.3.0.13/32", "", ""), tenant+"/web", "spec", "floatingIP"), "worker3", "spec", "grantor")},
				patchStatus(block("blue-10-3-0-13-32", "", "", ""), granted("True", "node worker1, which has the block, does not hand it out")),
				"that another node hands out"},
			{"refuse another node's claim", []object{block("blue-10-3-0-3-32", "10.3.0.3/32", other, "a/b")},
				patchStatus(block("blue-10-3-0-3-32", "", "", ""), granted("False", "node worker1, which has the block: address 10.3.0.3 is taken")), ""},
			{"refuse as older agents do", []object{block("blue-10-3-0-4-32", "10.3.0.4/32", other, "a/b")},
				patchStatus(block("blue-10-3-0-4-32", "", "", ""), granted("False", "address 10.3.0.4 on Network blue belongs to a/c")), ""},
			{"grant in another node's name", []object{block("blue-10-3-0-5-32", "10.3.0.5/32", "worker3", "a/b")},
				patchStatus(block("blue-10-3-0-5-32", "", "", ""), granted("True", "node worker2, which has the block, does not hand it out")), "in its own name"},
			{"refuse in another node's name", []object{block("blue-10-3-0-6-32", "10.3.0.6/32", "worker3", "a/b")},
				patchStatus(block("blue-10-3-0-6-32", "", "", ""), granted("False", "node worker2, which has the block: it is taken")), "in its own name"},
			{"grant its own claim", []object{block("blue-10-3-0-7-32", "10.3.0.7/32", own, "a/b")},
				patchStatus(block("blue-10-3-0-7-32", "", "", ""), granted("True", "node worker1, which has the block, does not hand it out")), "another node's to say"},
			{"take back a grant", []object{answered(block("blue-10-3-0-8-32", "10.3.0.8/32", "worker3", "a/b"))},
				patchStatus(block("blue-10-3-0-8-32", "", "", ""), granted("False", "node worker1, which has the block: it is taken")), "answers claims of addresses once"},
			{"grant a claim that it is asked about", []object{with(block("blue-10-3-0-9-32", "10.3.0.9/32", other, "a/b"), own, "spec", "grantor")},
				patchStatus(block("blue-10-3-0-9-32", "", "", ""), granted("True", "node worker1, which has the block, does not hand it out")), ""},
			{"refuse a claim that another node is asked about",
				[]object{with(block("blue-10-3-0-10-32", "10.3.0.10/32", other, "a/b"), "worker3", "spec", "grantor")},
				patchStatus(block("blue-10-3-0-10-32", "", "", ""), granted("False", "node worker1, which has the block: it is taken")),
				"that another node hands out"},
			{"refuse a claim that another node is asked about, as older agents do",
				[]object{with(block("blue-10-3-0-11-32", "10.3.0.11/32", other, "a/b"), "worker3", "spec", "grantor")},
				patchStatus(block("blue-10-3-0-11-32", "", "", ""), granted("False", "it is taken")), "that another node hands out"},
			{"that it is active for a shared address", []object{shared("blue-10-3-0-20-32", "10.3.0.20/32", "")},
				patchStatus(block("blue-10-3-0-20-32", "", "", ""), map[string]any{"activeNode": own}), ""},
			{"that it is active in place of another node", []object{shared("blue-10-3-0-21-32", "10.3.0.21/32", other)},
				patchStatus(block("blue-10-3-0-21-32", "", "", ""), map[string]any{"activeNode": own}), ""},
			{"that another node is active", []object{shared("blue-10-3-0-22-32", "10.3.0.22/32", own)},
				patchStatus(block("blue-10-3-0-22-32", "", "", ""), map[string]any{"activeNode": other}), "active its own node only"},
			{"that no node is active", []object{shared("blue-10-3-0-23-32", "10.3.0.23/32", other)},
				patchStatus(block("blue-10-3-0-23-32", "", "", ""), map[string]any{"activeNode": nil}), "active its own node only"},
			{"that it is active for an Egress", []object{with(block("blue-10-3-0-28-32", "10.3.0.28/32", "", ""), "bank", "spec", "egress")},
				patchStatus(block("blue-10-3-0-28-32", "", "", ""), map[string]any{"activeNode": own}), ""},
			{"that another node is active for an Egress", []object{with(block("blue-10-3-0-29-32", "10.3.0.29/32", "", ""), "bank", "spec", "egress")},
				patchStatus(block("blue-10-3-0-29-32", "", "", ""), map[string]any{"activeNode": other}), "active its own node only"},
			{"that it is active for a node's gateway", []object{with(block("blue-10-3-0-24-32", "10.3.0.24/32", "", ""), "red/"+own, "spec", "gateway")},
				patchStatus(block("blue-10-3-0-24-32", "", "", ""), map[string]any{"activeNode": own}), "active its own node only"},
			{"that it is active for a FloatingIP", []object{with(block("blue-10-3-0-25-32", "10.3.0.25/32", "", ""), tenant+"/web", "spec", "floatingIP")},
				patchStatus(block("blue-10-3-0-25-32", "", "", ""), map[string]any{"activeNode": own}), "active its own node only"},
			{"that it is active for its own block", []object{block("blue-10-3-1-192-26", "10.3.1.192/26", own, "")},
				patchStatus(block("blue-10-3-1-192-26", "", "", ""), map[string]any{"activeNode": own}), "active its own node only"},
			{"what is used of a shared address", []object{shared("blue-10-3-0-26-32", "10.3.0.26/32", "")},
				patchStatus(block("blue-10-3-0-26-32", "", "", ""), map[string]any{"used": 1}), "own node's AddressBlocks only"},
			{"a grant in another node's name, and that it is active", []object{shared("blue-10-3-0-27-32", "10.3.0.27/32", "")},
				patchStatus(block("blue-10-3-0-27-32", "", "", ""), map[string]any{"activeNode": own, "conditions": granted("True",
					"node worker2, which has the block, does not hand it out")["conditions"]}), "in its own name"},
			{"answer for a block of many", []object{block("blue-10-3-1-128-26", "10.3.1.128/26", other, "")},
				patchStatus(block("blue-10-3-1-128-26", "", "", ""), granted("True", "node worker1, which has the block")), "own node's AddressBlocks only"},
		},
		{"", "events", "create"}: {
			{"in its own name", nil, create(event("e1", "coelan-agent", own)), ""},
			{"in another node's name", nil, create(event("e2", "coelan-agent", other)), "Events of its own only"},
			{"in another component's name", nil, create(event("e3", "kubelet", own)), "Events of its own only"},
		},
		{"", "events", "patch"}: {
			{"its own", []object{event("e4", "coelan-agent", own)}, patch(event("e4", "", ""), map[string]any{"count": 2, "message": "n"}), ""},
			{"another node's", []object{event("e5", "coelan-agent", other)}, patch(event("e5", "", ""), map[string]any{"count": 2}), "Events of its own only"},
			{"kubelet's, as its own", []object{event("e6", "kubelet", own)}, patch(event("e6", "", ""), map[string]any{
				"source": map[string]any{"component": "coelan-agent"}}), "Events of its own only"},
		},
	}
}
