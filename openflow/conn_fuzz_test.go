// SPDX-License-Identifier: Apache-2.0

package openflow

import "testing"

// Whatever a switch says first, reading it ends well, and a Hello without a
// readable bitmap counts by its version.
func FuzzHello(f *testing.F) {
	f.Add(uint8(6), hello15[8:])
	f.Add(uint8(1), []byte{})
	f.Add(uint8(255), []byte{0, 1, 0, 4})
	f.Fuzz(func(t *testing.T, version uint8, body []byte) {
		versions := helloVersions(version, body)
		if len(body) < 4 && (versions&(1<<Version) != 0) != (version >= Version) {
			t.Errorf("version %d offers %b", version, versions)
		}
		if err := checkVersion(versions); (err == nil) != (versions&(1<<Version) != 0) {
			t.Error(err)
		}
	})
}
