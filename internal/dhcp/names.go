// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"strings"

	"github.com/insomniacslk/dhcp/rfc1035label"
)

// domains are names in the form of DNS; nil if there is none. Those that have no such form are
// left out: a search domain is any text to runtimes.
func domains(names []string) *rfc1035label.Labels {
	var list []string
	for _, name := range names {
		if name = strings.TrimSuffix(name, "."); isDomain(name) {
			list = append(list, name)
		}
	}
	if list == nil {
		return nil
	}
	return &rfc1035label.Labels{Labels: list}
}

// maxDomain is the length of a name of DNS (RFC 1035, section 2.3.4), as text.
const maxDomain = 253

func isDomain(name string) bool {
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel {
			return false
		}
	}
	return len(name) <= maxDomain
}

// MachineName is what a machine calls itself, without the dot at the end; empty if that is not the
// name of a host (RFC 1123, section 2.1). Names are shown to users and may be read by programs: no
// other characters than those of names get there.
func MachineName(name string) string {
	name = strings.TrimSuffix(name, ".")
	if !isDomain(name) {
		return ""
	}
	for label := range strings.SplitSeq(name, ".") {
		if strings.ContainsFunc(label, notInHostNames) || label[0] == '-' || label[len(label)-1] == '-' {
			return ""
		}
	}
	return name
}

func notInHostNames(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	return !letter && (r < '0' || r > '9') && r != '-'
}
