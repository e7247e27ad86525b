// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// labelIndex finds those of many label selectors that may select given labels, without a look at
// those that cannot.
type labelIndex[T comparable] struct {
	pairs map[pair][]T
	rest  []T // those with selectors that require no label
}

// pair is a label; with anyValue for all values.
type pair struct{ key, value string }

// anyValue is no label's value.
const anyValue = "\x00"

// hooks are the labels of which those that are selected have one, or none if there is nothing that
// all of them have. All have the same key.
func hooks(requirements labels.Requirements) []pair {
	var best []pair
	for _, r := range requirements {
		var found []pair
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			values := r.ValuesUnsorted()
			slices.Sort(values)
			for _, v := range slices.Compact(values) {
				found = append(found, pair{r.Key(), v})
			}
			if best == nil || best[0].value == anyValue || len(found) < len(best) {
				best = found
			}
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			if best == nil {
				best = []pair{{r.Key(), anyValue}}
			}
		}
	}
	return best
}

func (x *labelIndex[T]) add(requirements labels.Requirements, t T) {
	h := hooks(requirements)
	if len(h) == 0 {
		x.rest = append(x.rest, t)
		return
	}
	if x.pairs == nil {
		x.pairs = map[pair][]T{}
	}
	for _, p := range h {
		x.pairs[p] = append(x.pairs[p], t)
	}
}

func (x *labelIndex[T]) remove(requirements labels.Requirements, t T) {
	h := hooks(requirements)
	if len(h) == 0 {
		x.rest = without(x.rest, t)
		return
	}
	for _, p := range h {
		if left := without(x.pairs[p], t); len(left) > 0 {
			x.pairs[p] = left
		} else {
			delete(x.pairs, p)
		}
	}
}

// candidates are those that may select the labels, each once.
func (x *labelIndex[T]) candidates(l labels.Set) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, t := range x.rest {
			if !yield(t) {
				return
			}
		}
		if len(x.pairs) == 0 {
			return
		}
		for k, v := range l {
			for _, p := range [...]pair{{k, v}, {k, anyValue}} {
				for _, t := range x.pairs[p] {
					if !yield(t) {
						return
					}
				}
			}
		}
	}
}

// without removes one that is there; the order does not matter.
func without[T comparable](s []T, t T) []T {
	i := slices.Index(s, t)
	s[i] = s[len(s)-1]
	clear(s[len(s)-1:])
	return s[:len(s)-1]
}
