// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"go4.org/netipx"
)

// set is one named set or map of a table, with its contents.
type set struct {
	name string
	key  nftables.SetDatatype
	// value is what a map's keys lead to; sets have none.
	value nftables.SetDatatype
	kind  setKind

	// ranges are the contents of a set of addresses.
	ranges []netipx.IPRange
	// elements are those of the other kinds, by their keys: what a map's key leads to, the
	// end of a run.
	elements map[string]string
}

// setKind says how a set's elements look.
type setKind int

const (
	// addresses are runs of addresses. They are exchanged as a whole.
	addresses setKind = iota
	// keys are single ones; with a value it is a map.
	keys
	// runs are keys with an end; each of their fields is a run of its own (Linux 5.6).
	runs
)

func (s set) kernel(table *nftables.Table) *nftables.Set {
	k := &nftables.Set{Table: table, Name: s.name, KeyType: s.key, Interval: s.kind != keys,
		Concatenation: len(s.key.Name) > 0 && concatenated(s.key)}
	if s.value.Bytes > 0 {
		k.IsMap, k.DataType = true, s.value
	}
	return k
}

func concatenated(t nftables.SetDatatype) bool { return len(nftables.ConcatSetTypeElements(t)) > 1 }

// sameType says that a set of the kernel has the name and the form of s.
func (s set) sameType(have *nftables.Set) bool {
	k := s.kernel(nil)
	return have.Name == k.Name && have.Interval == k.Interval && have.IsMap == k.IsMap &&
		have.KeyType.Bytes == k.KeyType.Bytes &&
		(!k.IsMap || have.DataType.Bytes == k.DataType.Bytes)
}

// all are the elements as the kernel wants them.
func (s set) all() []nftables.SetElement {
	if s.kind == addresses {
		return elements(s.ranges)
	}
	es := make([]nftables.SetElement, 0, len(s.elements))
	for k, v := range s.elements {
		es = append(es, s.element(k, v))
	}
	return es
}

func (s set) element(key, value string) nftables.SetElement {
	e := nftables.SetElement{Key: []byte(key)}
	switch {
	case s.kind == runs:
		e.KeyEnd = []byte(value)
	case s.value.Bytes > 0:
		e.Val = []byte(value)
	}
	return e
}

// read is s with what the kernel has instead.
func (s set) read(es []nftables.SetElement) set {
	if s.kind == addresses {
		s.ranges = rangesOf(es)
		return s
	}
	s.elements = make(map[string]string, len(es))
	for _, e := range es {
		end := e.Val
		if s.kind == runs {
			end = e.KeyEnd
		}
		s.elements[string(e.Key)] = string(end)
	}
	return s
}

// batch is how many elements go into one message; a list of them must not be longer than 64 KiB.
const batch = 400

func (s set) add(conn *nftables.Conn, k *nftables.Set, es []nftables.SetElement) error {
	for part := range slices.Chunk(es, batch) {
		if err := conn.SetAddElements(k, part); err != nil {
			return err
		}
	}
	return nil
}

// exchange queues what makes of have's contents those of s. It returns 1 if they differ.
func (s set) exchange(conn *nftables.Conn, k *nftables.Set, have set) (int, error) {
	d := s.diff(have)
	if d.empty() {
		return 0, nil
	}
	if d.flush {
		conn.FlushSet(k)
	}
	for part := range slices.Chunk(d.gone, batch) {
		if err := conn.SetDeleteElements(k, part); err != nil {
			return 0, err
		}
	}
	return 1, s.add(conn, k, d.fresh)
}

// setDiff leads from a set's contents to others: all go, or some, and then some come.
type setDiff struct {
	flush       bool
	gone, fresh []nftables.SetElement
}

func (d setDiff) empty() bool { return !d.flush && len(d.gone)+len(d.fresh) == 0 }

// diff leads from have's contents to those of s. Runs of addresses are exchanged whole.
func (s set) diff(have set) setDiff {
	if s.kind == addresses {
		if slices.Equal(have.ranges, s.ranges) {
			return setDiff{}
		}
		return setDiff{flush: true, fresh: s.all()}
	}
	var d setDiff
	for key, v := range have.elements {
		if w, ok := s.elements[key]; !ok || w != v {
			d.gone = append(d.gone, s.element(key, v))
		}
	}
	for key, v := range s.elements {
		if w, ok := have.elements[key]; !ok || w != v {
			d.fresh = append(d.fresh, s.element(key, v))
		}
	}
	return d
}

// lacks says that have misses an element of s.
func (s set) lacks(have set) bool {
	for key, v := range s.elements {
		if there, ok := have.elements[key]; !ok || there != v {
			return true
		}
	}
	return false
}

// maxRemovals is how much the kernel may have to do to take runs out of a set: for each, it looks
// at all that are there.
const maxRemovals = 100_000

// costly says that a new set is made sooner than have's contents are exchanged.
func (s set) costly(have set) bool {
	if s.kind != runs {
		return false
	}
	gone := 0
	for key, v := range have.elements {
		if s.elements[key] != v {
			gone++
		}
	}
	return gone*len(have.elements) > maxRemovals
}

// addressSets are the two sets, of both families, of the addresses of prefixes.
func addressSets(name string, prefixes []netip.Prefix) []set {
	return []set{
		{name: name + "4", key: nftables.TypeIPAddr, ranges: ranges(prefixes, netip.Addr.Is4)},
		{name: name + "6", key: nftables.TypeIP6Addr, ranges: ranges(prefixes, netip.Addr.Is6)},
	}
}
