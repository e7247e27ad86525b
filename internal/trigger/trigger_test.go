// SPDX-License-Identifier: Apache-2.0

package trigger

import "testing"

func TestFireCoalesces(t *testing.T) {
	w := New()
	w.Fire()
	w.Fire()
	<-w
	select {
	case <-w:
		t.Error("two Fire calls before the receiver runs wake it twice")
	default:
	}
	w.Fire()
	<-w
}
