// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"time"

	"coelan.io/coelan/internal/watcher/coe"
)

// Status says how far the target is as it should be.
type Status struct {
	Connected bool `json:"connected"`
	// Since is when Connected became what it is.
	Since time.Time `json:"since"`
	// Error says why it is not connected.
	Error    string    `json:"error,omitempty"`
	LastRead time.Time `json:"lastRead,omitzero"`
	// Lists are in the order of coe.Lists.
	Lists []ListStatus `json:"lists"`
	// OldestSeconds is the age of the oldest change that the target does not have.
	OldestSeconds float64 `json:"oldestSeconds"`
}

// ListStatus counts a list's entries.
type ListStatus struct {
	List string `json:"list"`
	// Wanted is how many the cluster has.
	Wanted int `json:"wanted"`
	// Pending is how many are to be written or deleted, Refused how many of them were refused.
	Pending int `json:"pending"`
	Refused int `json:"refused"`
	// LastRefusal is one of the reasons.
	LastRefusal string `json:"lastRefusal,omitempty"`
}

// Status counts now.
func (m *Mirror) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := Status{Connected: m.isOpen, Since: m.since, LastRead: m.lastRead}
	if m.err != nil {
		s.Error = m.err.Error()
	}
	counts := map[*coe.List]*ListStatus{}
	for _, list := range coe.Lists {
		counts[list] = &ListStatus{List: list.Name}
	}
	for ref, it := range m.items {
		c := counts[ref.List]
		if it.want != "" {
			c.Wanted++
		}
		if !it.known || it.have != it.want {
			c.Pending++
			if !it.changed.IsZero() {
				s.OldestSeconds = max(s.OldestSeconds, time.Since(it.changed).Seconds())
			}
		}
		if it.refused != nil {
			c.Refused++
			c.LastRefusal = ref.String() + ": " + it.refused.Error()
		}
	}
	for _, list := range coe.Lists {
		s.Lists = append(s.Lists, *counts[list])
	}
	return s
}
