// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"testing"
)

func TestGatewaysAreAskedForAtOnce(t *testing.T) {
	play(t, func(t *testing.T, w *world) {
		w.up(gateway, router)
		w.up(gateway6, other)
		w.SetSegments([]Segment{segment()})
		w.expect("198.51.100.7 asks all for 198.51.100.1", "2001:db8::7 asks all for 2001:db8::1")
		w.table(known(gateway, router), known(gateway6, other))
	})
}
