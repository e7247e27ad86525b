// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"slices"
)

// Reason is what kind of Problem it is, in the form of an Event's reason.
type Reason string

// The reasons.
const (
	Missing   Reason = "Missing"   // the field is empty
	Malformed Reason = "Malformed" // the value cannot be read, or makes no sense
	Overlap   Reason = "Overlap"   // the value belongs to another object already
	InUse     Reason = "InUse"     // the value belongs to something outside of the cluster

	NotAllowed  Reason = "NotAllowed"  // an administrator, or the value itself, rules it out
	Unsupported Reason = "Unsupported" // the value is valid, but not implemented
	TooMany     Reason = "TooMany"     // there are more than can be made use of
	NotFound    Reason = "NotFound"    // the value names something that does not exist
	NotOwned    Reason = "NotOwned"    // the value is not one that its node may give
)

// Problem is a value in a Kubernetes object that was left out.
type Problem struct {
	Object string // such as "node worker1"
	Field  string // such as "spec.podCIDRs[0]"
	Value  string // what the field holds, "" if it is empty
	Reason Reason
	Text   string // what is wrong, and what to do
}

// Error is the problem in one line.
func (p Problem) Error() string {
	if p.Value == "" {
		return fmt.Sprintf("%s: %s: %s", p.Object, p.Field, p.Text)
	}
	return fmt.Sprintf("%s: %s: %q %s", p.Object, p.Field, p.Value, p.Text)
}

// sortProblems puts problems into an order that does not depend on that of the
// objects.
func sortProblems(problems []Problem) {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Text, b.Text),
			cmp.Compare(a.Value, b.Value))
	})
}
