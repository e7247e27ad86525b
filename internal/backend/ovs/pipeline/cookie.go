// SPDX-License-Identifier: Apache-2.0

package pipeline

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
