// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/intent"
)

// Kind compiles the objects of one kind.
type Kind interface {
	// Name begins the names of the kind's units, such as "Port".
	Name() string
	// Affected yields the keys of the units that may differ between two States, also of those that
	// are gone, any of them more than once. It is called for each Update in turn, so that a Kind
	// may keep indexes of the newest State. With from nil, all units of to are affected.
	Affected(from, to *intent.State, d intent.Delta, yield func(key string))
	// Compile fills in a unit; it leaves u empty if the State has no such object.
	Compile(s *intent.State, key string, u *nb.Unit)
}

// Options are what rows depend on beside intent.
type Options struct {
	Cluster names.Cluster
}

// Compiler keeps rows as intent has them. It is not safe for concurrent use.
type Compiler struct {
	kinds []Kind
	rows  *nb.Rows
	state *intent.State
}

// New returns a Compiler without rows.
func New(o Options) *Compiler { return newCompiler(kinds(o)...) }

func newCompiler(kinds ...Kind) *Compiler { return &Compiler{kinds: kinds, rows: nb.NewRows()} }

// Rows are those of the last Update. They change with the next one.
func (c *Compiler) Rows() *nb.Rows { return c.rows }

// Update makes the rows those of a State, at a cost that follows from what differs from the State
// of the Update before.
func (c *Compiler) Update(s *intent.State) {
	c.update(c.state, s)
	c.state = s
}

// update compiles what may differ between two States; from nil, all of the second.
func (c *Compiler) update(from, s *intent.State) {
	d := intent.Diff(from, s)
	for _, k := range c.kinds {
		done := map[string]bool{}
		k.Affected(from, s, d, func(key string) {
			if done[key] {
				return
			}
			done[key] = true
			c.compile(s, k, key)
		})
	}
}

// compile makes the rows of one unit.
func (c *Compiler) compile(s *intent.State, k Kind, key string) {
	var u nb.Unit
	k.Compile(s, key, &u)
	c.rows.Set(k.Name()+"/"+key, u)
}
