// SPDX-License-Identifier: Apache-2.0

package compile

// Table is one table of the pipeline.
type Table struct {
	ID      uint8
	Name    string // as traces and status print it
	Purpose string
	// miss is why a packet that no other flow of the table matches is dropped.
	miss string
}

// The tables, in the order of a packet's way. Numbers leave room for features to
// come: services between neighbour and l2, policy between ttl and serviceReturn.
var (
	classify      = Table{0, "classify", "find the source's kind, network and router", "the port is not known"}
	tunnel        = Table{5, "tunnel", "find the network of a packet from another node", "the packet's network is not known on this node"}
	spoofguard    = Table{10, "spoofguard", "let only the port's own addresses pass as source", "no source address is known for the port"}
	neighbour     = Table{20, "neighbour", "look up the MAC that an ARP or ND question asks for", "the address that is asked for is not known on this node"}
	answer        = Table{22, "answer", "turn the question into its answer and send it back", "the question cannot be answered"}
	advertisement = Table{24, "advertisement", "add the MAC to a neighbour advertisement", "the question cannot be answered"}
	l2            = Table{40, "l2", "find the port of the destination MAC", "no port on this node has the destination MAC"}
	l3            = Table{50, "l3", "route by destination prefix in the source's router", "no route"}
	defaultRoute  = Table{51, "default-route", "keep what is in the cluster from a private router's default route", "the private router has no default route"}
	clusterSource = Table{52, "cluster-source", "give what leaves a private router its address in the cluster", "the sender has no address outside of its router"}
	cluster       = Table{54, "cluster", "route in the cluster for a private router", "no route in the private router"}
	hostAccess    = Table{56, "host-access", "let only the hosts and the outside reach a private router's port", ""}
	ttl           = Table{60, "ttl", "decrement the TTL of a packet that leaves for another node", "not an IP packet"}
	serviceReturn = Table{80, "service-return", "ask conntrack whether the host's kernel knows the connection", "not an IP packet"}
	serviceReply  = Table{85, "service-reply", "send replies to the host that translated the request's address", ""}
	output        = Table{100, "output", "send the packet out of the chosen port", ""}
)

// The joints of the pipeline. A feature that comes between two stages changes
// the one it fits in.
var (
	forwarding = l2            // once the source is known and genuine
	delivery   = serviceReturn // once the output port is chosen
)

// Tables lists all tables in the order of a packet's way.
func Tables() []Table {
	var all []Table
	for _, f := range features {
		all = append(all, f.tables...)
	}
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
