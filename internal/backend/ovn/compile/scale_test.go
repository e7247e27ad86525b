// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"testing"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
)

// crowd is 20,000 Ports on 400 nodes.
func crowd() intent.Objects {
	const nodes, each = 400, 50
	o := defaults()
	o.Nodes = nil
	for i := range nodes {
		n := intent.Node{Name: fmt.Sprintf("n%d", i), MTU: 1400}
		p := prefix(fmt.Sprintf("10.%d.%d.0/24", 100+i/256, i%256))
		n.Subnets = []intent.Subnet{{Network: "default", Prefix: p, Gateway: p.Addr().Next()}}
		o.Nodes = append(o.Nodes, n)
		for j := range each {
			o.Ports = append(o.Ports, intenttest.Port("shop", fmt.Sprintf("p-%d-%d", i, j), "default", n.Name,
				fmt.Sprintf("10.%d.%d.%d", 100+i/256, i%256, j+2)))
		}
	}
	return o
}

// BenchmarkOnePortMore is what one Port more costs among 20,000.
func BenchmarkOnePortMore(b *testing.B) {
	store := intent.NewStore()
	s, _ := store.Update(func(tx *intent.Tx) error { tx.Replace(crowd()); return nil })
	c := compiled(s)
	c.Rows().Changes()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s, _ = store.Update(func(tx *intent.Tx) error {
			if p := intenttest.Port("shop", "more", "default", "n7", "10.100.7.200"); i%2 == 0 {
				tx.SetPort(p)
			} else {
				tx.DeletePort(p.ID)
			}
			return nil
		})
		c.Update(s)
		if n := len(c.Rows().Changes()); n != 2 {
			b.Fatalf("%d rows changed, not the port and its switch", n)
		}
	}
}

// A Port more concerns two rows, however many there are.
func TestOnePortMoreIsTwoRows(t *testing.T) {
	store := intent.NewStore()
	s, _ := store.Update(func(tx *intent.Tx) error { tx.Replace(crowd()); return nil })
	c := compiled(s)
	c.Rows().Changes()
	s, _ = store.Update(func(tx *intent.Tx) error {
		tx.SetPort(intenttest.Port("shop", "more", "default", "n7", "10.100.7.200"))
		return nil
	})
	c.Update(s)
	if changes := c.Rows().Changes(); len(changes) != 2 {
		t.Errorf("changes: %v", changes)
	}
}
