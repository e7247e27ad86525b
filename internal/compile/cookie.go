// SPDX-License-Identifier: Apache-2.0

package compile

import "coelan.io/coelan/internal/intent"

// A cookie is 0xc0e0 in the upper 16 bits, the feature's number in the next 8 and
// a hash of the owner, and of the reason if the flow drops, in the lower 40.
const (
	CookieBase uint64 = 0xc0e0 << 48
	CookieMask uint64 = 0xffff << 48
)

// Meaning is what a cookie stands for.
type Meaning struct {
	Feature string // such as "spoofguard"
	Owner   string // such as "port/default/web-0/eth0", "node/worker1" or "local"
	Reason  string // why the flow drops; "" if it does not
	// Verdict is what flows decide that policies made; nil for all others.
	Verdict *Verdict
}

// Verdict is what policies decide of a connection in one direction.
type Verdict struct {
	Direction intent.Direction
	Tier      intent.Tier
	Action    intent.Action // Pass leads on to another Verdict
	// Policies has the one whose rule decides, or those of which no rule allows the connection, sorted; none if the Port is
	// closed for another reason.
	Policies []intent.PolicyRef
	// Rule is the rule's number; 0 if no rule decides.
	Rule int
}

// PolicyCookies are those of flows whose meaning may have a Verdict: the cookies that are cookie under mask. They are of the
// features policy-subject, 21, and policy-rule, 23.
func PolicyCookies() (cookie, mask uint64) {
	return CookieBase | 21<<40, CookieMask | 0xfd<<40
}

// Drops says whether flows of that meaning drop packets.
func (m Meaning) Drops() bool { return m.Reason != "" }

// cookie depends on its arguments only, so that restarts change no flow.
func cookie(feature uint8, owner, reason string) uint64 {
	h := fnv1a(fnv1a(14695981039346656037, owner), "\x00")
	h = fnv1a(h, reason)
	const low40 = 1<<40 - 1
	return CookieBase | uint64(feature)<<40 | (h^h>>40)&low40
}

// fnv1a continues the 64-bit FNV-1a hash h with s.
func fnv1a(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
