// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// portPrefix cannot begin a container's id, which has no colon.
const portPrefix = "port:"

// PortKey is the key of the attachment of a user's Port, such as that of a virtual machine. Its
// String is port:namespace/name.
func PortKey(namespace, name string) Key {
	return Key{ContainerID: portPrefix + namespace, IfName: name}
}

// IsPort says whether the key is that of a user's Port.
func (k Key) IsPort() bool { return strings.HasPrefix(k.ContainerID, portPrefix) }

// objectName is what the API takes as a Port's name: a subdomain of RFC 1123.
var objectName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// maxObjectName is the length in bytes that the API takes.
const maxObjectName = 253

// PortName is the name of the Port of a pod's interface: pod.interface. What cannot be a name, such
// as that of an interface in capitals, is replaced, and made unique again by a hash.
func PortName(pod, ifName string) string {
	name := pod + "." + ifName
	if len(name) <= maxObjectName && objectName.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "." + hex.EncodeToString(sum[:5])
	return strings.TrimRight(pod[:min(len(pod), maxObjectName-len(suffix))], ".-") + suffix
}
