// SPDX-License-Identifier: Apache-2.0

package broadcast

import "testing"

func TestSendWakesAllThatWait(t *testing.T) {
	var b Broadcast
	b.Send()
	first, second := b.Changed(), b.Changed()
	select {
	case <-first:
		t.Fatal("a Send before Changed wakes")
	default:
	}
	b.Send()
	<-first
	<-second
	select {
	case <-b.Changed():
		t.Error("one Send wakes a waiter that came later")
	default:
	}
}
