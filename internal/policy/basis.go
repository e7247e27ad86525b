// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
)

// Versions are what is known of the objects of one kind, as resource versions of the API, which are
// compared as integers.
type Versions struct {
	// Changed is the resource version of the newest known change.
	Changed uint64
	// Seen is the resource version up to which all changes are known. It also
	// grows without a change.
	Seen uint64
}

// Basis is what a View was computed from, by kind. Two controllers that know the same
// changes may differ in Seen, and in Changed after a restart, because a list does not
// contain what was deleted before.
type Basis map[string]Versions

// Lacks names a kind of which other contains a change that b has not seen; it is empty if there is
// none. A kind that b lacks altogether is not compared: the API may no longer have it.
func (b Basis) Lacks(other Basis) string {
	for _, kind := range slices.Sorted(maps.Keys(other)) {
		if mine, known := b[kind]; known && mine.Seen < other[kind].Changed {
			return kind
		}
	}
	return ""
}

// Missing is the error for a kind that Lacks has found.
func (b Basis) Missing(kind string, other Basis) error {
	return fmt.Errorf("%s: changes are seen up to resource version %d, and %d is in effect already",
		kind, b[kind].Seen, other[kind].Changed)
}

// Advance returns the newest changes of both. Seen is left out: it is about one controller.
func (b Basis) Advance(later Basis) Basis {
	next := Basis{}
	for kind, v := range b {
		next[kind] = Versions{Changed: v.Changed}
	}
	for kind, v := range later {
		next[kind] = Versions{Changed: max(next[kind].Changed, v.Changed)}
	}
	return next
}

// Rewind is Advance where the API's resource versions have gone back: no change is newer than what
// is seen now.
func (b Basis) Rewind(now Basis) Basis {
	next := b.Advance(now)
	for kind, v := range now {
		next[kind] = Versions{Changed: min(next[kind].Changed, v.Seen)}
	}
	return next
}

// Equal compares the changes.
func (b Basis) Equal(other Basis) bool {
	return maps.EqualFunc(b, other, func(x, y Versions) bool { return x.Changed == y.Changed })
}
