// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// compareAll lets cmp look into this package's types.
var compareAll = cmp.Exporter(func(reflect.Type) bool { return true })

// TestGeneratedFlows sends flows through the wire form and the text form and back.
func TestGeneratedFlows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := genFlow(t)
		if err := f.Validate(); err != nil {
			t.Fatalf("a good flow: %v", err)
		}
		b, err := AppendMessage(nil, 7, AddFlow(f))
		if err != nil {
			t.Fatal(err)
		}
		xid, m, err := Decode(b)
		if err != nil || xid != 7 {
			t.Fatalf("decode: %d, %v", xid, err)
		}
		if diff := cmp.Diff(AddFlow(f), m, compareAll); diff != "" {
			t.Errorf("decoded differs:\n%s", diff)
		}
		again, err := AppendMessage(nil, 7, m)
		if err != nil || !bytes.Equal(b, again) {
			t.Errorf("encoded again differs:\n%x\n%x", b, again)
		}
		parsed, err := ParseFlow(f.String())
		if err != nil {
			t.Fatal(err)
		}
		if !parsed.Equal(&f) {
			t.Errorf("parsed differs:\n%s\n%s", &parsed, &f)
		}
	})
}
