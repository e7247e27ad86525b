// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"coelan.io/coelan/internal/intent"
)

// ruleID is the ID of a rule as intent.Rule has it. Parts of a rule that are for what a port's name
// stands for have a suffix.
func ruleID(ref intent.PolicyRef, d intent.Direction, number int) string {
	direction := "ingress"
	if d == intent.Egress {
		direction = "egress"
	}
	return string(ref.Kind) + "/" + ref.Namespace + "/" + ref.Name + "/" + direction + "/" + strconv.Itoa(number)
}

// subjects are the Ports that the policy is for: of a SecurityGroup always those that name it.
func (p Policy) subjects() []Selector {
	if p.Ref.Kind == intent.SecurityGroup {
		return []Selector{{SecurityGroup: p.Ref.Namespace + "/" + p.Ref.Name}}
	}
	return p.Subjects
}

// securityGroupRef is the inverse: the policy of that namespace/name.
func securityGroupRef(name string) intent.PolicyRef {
	namespace, name, _ := strings.Cut(name, "/")
	return intent.PolicyRef{Kind: intent.SecurityGroup, Namespace: namespace, Name: name}
}

// Why a Port is closed.
func unknownNamespace(name string) string     { return "namespace " + name + " is not known yet" }
func unknownSecurityGroup(name string) string { return "SecurityGroup " + name + " does not exist" }

// nowhere is why a Port is closed that others are to deny something by its address. Else it could
// do what they deny until they know it.
const nowhere = "its address is not known yet, by which a ClusterNetworkPolicy denies it something"

// splitPorts tells ports with numbers, sorted, from those with names.
func splitPorts(ports []Port) (numbered []intent.PortRange, named []Port) {
	for _, p := range ports {
		if p.Name == "" {
			numbered = append(numbered, p.PortRange)
		} else {
			named = append(named, p)
		}
	}
	slices.SortFunc(numbered, comparePorts)
	return slices.Compact(numbered), named
}

func comparePorts(a, b intent.PortRange) int {
	icmp := 0
	if a.ICMP != b.ICMP {
		icmp = -1
		if a.ICMP {
			icmp = 1
		}
	}
	return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last), icmp)
}

// resolve returns what a port's name stands for where there are these container ports, sorted.
func resolve(ports []NamedPort, p Port) []resolved {
	var out []resolved
	for _, n := range ports {
		if n.Name == p.Name && (p.Protocol == 0 || p.Protocol == n.Protocol) {
			out = append(out, resolved{n.Protocol, n.Port})
		}
	}
	slices.SortFunc(out, resolved.compare)
	return slices.Compact(out)
}
