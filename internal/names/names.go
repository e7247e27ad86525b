// SPDX-License-Identifier: Apache-2.0

package names

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
)

// Lengths that the API allows.
const (
	maxName      = 63  // of a Network or Router, as their definitions say
	maxBlockName = 253 // of an AddressBlock, as of any object: a DNS subdomain
	maxLabel     = 63  // of a label's value
)

// hashDigits is how much of a hash tells apart names that were cut, in hexadecimal digits.
const hashDigits = 12

// NamespaceRouter is the name of the Router that a namespace has in the mapping by namespace.
func NamespaceRouter(namespace string) string { return bounded(maxName, "ns-"+namespace, namespace) }

// NamespaceNetwork is the name of the Network that a namespace has on a node in the mapping by
// namespace: ns-<namespace>-<node>. A namespace with a dash in its name has a hash at the end,
// because without one a-b on node c and a on node b-c would be the same.
func NamespaceNetwork(namespace, node string) string {
	name := "ns-" + namespace + "-" + node
	if strings.Contains(namespace, "-") {
		name += "-" + digest(namespace, node)
	}
	return bounded(maxName, name, namespace, node)
}

// BlockName is the name of the AddressBlock for a prefix of a Network:
// <network>-<address>-<length>, with dashes for dots and colons, and IPv6 addresses written out.
func BlockName(network string, prefix netip.Prefix) string {
	prefix = prefix.Masked()
	address := strings.NewReplacer(".", "-", ":", "-").Replace(prefix.Addr().StringExpanded())
	name := fmt.Sprintf("%s-%s-%d", network, address, prefix.Bits())
	return bounded(maxBlockName, name, network, prefix.String())
}

// LabelValue is s as a label's value: s itself if it is short enough, else its beginning and a
// hash.
func LabelValue(s string) string { return bounded(maxLabel, s, s) }

// bounded is name if it has at most the given number of bytes; else its beginning and the hash of
// what it was made of.
func bounded(length int, name string, parts ...string) string {
	if len(name) <= length {
		return name
	}
	head := name[:length-hashDigits-1]
	// A dot or a dash before another one is no name.
	return strings.TrimRight(head, ".-") + "-" + digest(parts...)
}

// digest tells lists of strings apart. No part may hold a zero byte, which no name does.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:hashDigits]
}
