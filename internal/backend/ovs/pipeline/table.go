// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"slices"
)

// Table is one table of the pipeline.
type Table struct {
	ID      uint8
	Name    string // as traces and status print it
	Purpose string
	// miss is why a packet that no other flow of the table matches is dropped.
	miss string
}

// The tables, in the order of a packet's way. Numbers leave room for features to
// come.
var (
	classify = Table{0, "classify", "find the source's kind, network and router", "the port is not known"}
	tunnel   = Table{5, "tunnel", "find the network of a packet from another node",
		"the packet's network is not known on this node"}
	spoofguard = Table{10, "spoofguard", "let only the port's own addresses pass as source",
		"no source address is known for the port"}
	neighbour = Table{20, "neighbour", "look up the MAC that an ARP or ND question asks for",
		"the address that is asked for is not known on this node"}
	answer = Table{22, "answer", "turn the question into its answer and send it back",
		"the question cannot be answered"}
	advertisement = Table{24, "advertisement", "add the MAC to a neighbour advertisement",
		"the question cannot be answered"}

	service      = Table{30, "service", "ask conntrack for the connection, in the cluster's zone", ""}
	serviceState = Table{31, "service-state", "lead packets of known connections on, and new ones to the frontends",
		""}
	serviceFrontend = Table{32, "service-frontend", "find the Service of the destination address and port", ""}
	nodePort        = Table{33, "node-port", "find the Service of the port of the node", ""}
	affinityPin     = Table{34, "affinity-pin", "recall the client's endpoint (learned flows)", ""}
	affinity        = Table{35, "affinity", "use the client's endpoint if there still is one",
		"the Service is not known any more"}
	affinityLearn = Table{36, "affinity-learn", "remember the client's endpoint", "the Service is not known any more"}
	serviceSource = Table{37, "service-source", "ask again, now that a hairpin's client is known", ""}
	serviceRoute  = Table{38, "service-route", "go on to the endpoint, in the Service's router", ""}
	externalReply = Table{39, "external-reply", "find whether the answer of a floating IP's Service leaves by the wire",
		"this node does not answer for the address"}

	l2 = Table{40, "l2", "find the port of the destination MAC",
		"no port on this node has the destination MAC"}
	fromExternal = Table{41, "from-external",
		"give the agent what it answers or translates of what comes to an address of this node", ""}
	floatingIP = Table{42, "floating-ip", "compare what comes to an address of this node with the MTU",
		"this node does not answer for the address"}
	floatingPort = Table{43, "floating-ip-port", "lead what fits to the port that a floating IP stands for, or to conntrack", ""}
	gatewayReply = Table{44, "gateway-reply", "lead replies to the port that a gateway has let out",
		"no port has opened the connection by the gateway"}
	l3           = Table{50, "l3", "route by destination prefix in the source's router", "no route"}
	defaultRoute = Table{51, "default-route", "keep what is in the cluster from a private router's default route",
		"the private router has no default route"}
	clusterSource = Table{52, "cluster-source", "give what leaves a private router its address in the cluster",
		"the sender has no address outside of its router"}
	gatewayRoute  = Table{53, "gateway-route", "keep what is in the cluster from a private router's routed gateway", ""}
	cluster       = Table{54, "cluster", "route in the cluster for a private router", "no route in the private router"}
	hostAccess    = Table{56, "host-access", "let only the hosts and the outside reach a private router's port", ""}
	ttl           = Table{60, "ttl", "decrement the TTL of a packet that leaves for another node", "not an IP packet"}
	serviceReturn = Table{70, "service-return", "ask conntrack whether the host's kernel knows the connection",
		"not an IP packet"}
	serviceReply = Table{72, "service-reply", "send replies to the host that translated the request's address", ""}

	serviceHairpin = Table{78, "service-hairpin",
		"find packets of Services that leave by the port that they came in by", ""}

	policyState      = Table{79, "policy-state", "ask conntrack for connections that have not been looked up yet", ""}
	policyConnection = Table{80, "policy-connection",
		"let replies and what is not judged pass, and stop connections that are not allowed any more", ""}
	egressSubject    = Table{81, "egress-subject", "find the port that sends, and how it is governed", ""}
	egressPeer       = Table{82, "egress-peer", "find who the receiver is for policies", ""}
	egressGroup      = Table{83, "egress-security-group", "what the sender's SecurityGroups allow goes on", ""}
	egressAdmin      = Table{84, "egress-admin", "the sender's administrators' rules, priorities 0 to 499", ""}
	egressAdminLater = Table{85, "egress-admin-later", "the sender's administrators' rules, priorities from 500 on",
		""}
	egressPolicy      = Table{86, "egress-policy", "the sender's NetworkPolicies, or the baseline", ""}
	ingressSubject    = Table{87, "ingress-subject", "find how the port that receives is governed", ""}
	ingressPeer       = Table{88, "ingress-peer", "find who the sender is for policies", ""}
	ingressGroup      = Table{89, "ingress-security-group", "what the receiver's SecurityGroups allow goes on", ""}
	ingressAdmin      = Table{90, "ingress-admin", "the receiver's administrators' rules, priorities 0 to 499", ""}
	ingressAdminLater = Table{91, "ingress-admin-later", "the receiver's administrators' rules, priorities from 500 on",
		""}
	ingressPolicy = Table{92, "ingress-policy", "the receiver's NetworkPolicies, or the baseline", ""}
	policyVerdict = Table{93, "policy-verdict", "commit connections that are allowed", ""}
	policyDenied  = Table{94, "policy-denied", "mark a known connection that is not allowed any more", ""}

	serviceCommit   = Table{95, "service-commit", "commit new connections with their mark", ""}
	serviceEndpoint = Table{96, "service-endpoint", "commit the endpoint's address and port",
		"the endpoint is not known any more"}
	hairpinCommit = Table{97, "hairpin-commit", "have an endpoint that is its own client see another source", ""}
	hairpinOutput = Table{98, "hairpin-output", "let the packet leave by the port that it came in by", ""}

	policyAudit = Table{99, "policy-audit", "tell the agent of what is denied", ""}

	output         = Table{100, "output", "send the packet out of the chosen port", ""}
	toExternal     = Table{103, "to-external", "give the agent what it translates of what leaves by an external network", ""}
	externalSource = Table{104, "external-source", "give what leaves the cluster its floating IP, or the gateway's address, as source",
		"the source address may not leave by the external network"}
	gatewaySource = Table{105, "gateway-source", "let go on what conntrack has given the gateway's address",
		"conntrack has not translated the source address: it knows no such connection, or has no room"}
	policyRoute = Table{108, "policy-route", "find the next hop of a connection by an Egress that does not translate",
		""}
	policyHop = Table{109, "policy-hop", "find the next hop of a new connection, and commit it", ""}
	nextHop   = Table{106, "next-hop", "find the next hop on the external network",
		"the source address is of no subnet of the external network"}
	nextHopMAC = Table{107, "next-hop-mac", "find the MAC of a host on the external network", "not an IP packet"}
	pathMTU    = Table{102, "path-mtu", "keep from the tunnel what is too big for the other node", ""}
)

// forward ends the flow where the source is known and genuine. Features that come
// between source and destination change what is next here.
func (w flow) forward() {
	if w.rules.native() {
		w.goTo(service)
		return
	}
	w.goTo(l2)
}

// deliver ends the flow where the output port is chosen.
func (w flow) deliver() {
	if w.rules.native() {
		w.goTo(serviceHairpin)
		return
	}
	if w.rules.policed() {
		w.judge()
		return
	}
	w.goTo(serviceReturn)
}

// Tables lists all tables in the order of a packet's way.
func Tables() []Table {
	var all []Table
	for _, f := range features {
		all = append(all, f.tables...)
	}
	slices.SortFunc(all, func(a, b Table) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// TableName is the name of table id, "" if there is no such table.
func TableName(id uint8) string {
	for _, t := range Tables() {
		if t.ID == id {
			return t.Name
		}
	}
	return ""
}

// Unmatched says what it means that no flow of table id matches a packet, where the packet goes on
// all the same; "" for tables that it ends in.
func Unmatched(id uint8) string {
	return map[uint8]string{
		affinityPin.ID: "no endpoint is remembered for the client",
		egressPeer.ID:  "the receiver is in no group that rules ask for",
		ingressPeer.ID: "the sender is in no group that rules ask for",
	}[id]
}
