// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"crypto/sha256"
	"encoding/hex"
)

// ForeignBridge is a bridge that an external controller owns, as a network configuration names it.
// Attachments there are not in a Store: Open vSwitch's database has them.
type ForeignBridge struct {
	Name string
	// ConfName is the name in the CNI configuration.
	ConfName string
	// Controller and Manager are targets of Open vSwitch (ovs-vsctl(8)). No Manager: "".
	Controller, Manager string
	// Uplink is an interface of the node that is to be a port of the bridge; "": none is.
	Uplink string
	// ClusterID is the first part of iface-id.
	ClusterID string
}

// ForeignInterface is the name of the host's end for a key on a foreign bridge: "veth" and 8
// hexadecimal digits of its SHA-256. OpenDaylight knows interfaces of pods by names of this form.
func ForeignInterface(k Key) string {
	sum := sha256.Sum256([]byte(k.String()))
	return "veth" + hex.EncodeToString(sum[:4])
}
