// SPDX-License-Identifier: Apache-2.0

package trigger

import "testing"

func TestFireCoalesces(t *testing.T) {
	w := New()
	w.Fire()
	w.Fire()
	if !w.Pending() {
		t.Error("nothing is pending after Fire")
	}
	<-w
	if w.Pending() {
		t.Error("what was taken is pending")
	}
	select {
	case <-w:
		t.Error("two Fire calls before the receiver runs wake it twice")
	default:
	}
	w.Fire()
	<-w
}
