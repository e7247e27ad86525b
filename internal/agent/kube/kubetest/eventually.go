// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"testing"
	"time"
)

// patience bounds Eventually. It is long because other tests may have the processors.
const patience = 10 * time.Second

// Eventually waits until ok, which looks at the API and at what a part of the agent has made of it.
// Not all of that is announced, so it looks again and again.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not so: %s", what)
		}
	}
}
