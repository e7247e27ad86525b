// SPDX-License-Identifier: Apache-2.0

package openflow

import "fmt"

// MultipathAction hashes a packet's fields and stores the number of the chosen link, from 0.
type MultipathAction struct {
	Fields    HashFields
	Basis     uint16
	Algorithm MultipathAlgorithm
	Links     uint16 // number of links, at least 1
	Arg       uint32
	Dest      Subfield
}

// HashFields says which fields a multipath action hashes.
type HashFields uint16

// Hashed fields.
const (
	HashEthSrc HashFields = iota
	HashSymmetricL4
	HashSymmetricL3L4
	HashSymmetricL3L4UDP
	HashNWSrc
	HashNWDst
	HashSymmetricL3
)

var hashFieldsNames = []string{
	"eth_src", "symmetric_l4", "symmetric_l3l4", "symmetric_l3l4+udp", "nw_src", "nw_dst", "symmetric_l3",
}

// MultipathAlgorithm says how a multipath action chooses a link from a hash.
type MultipathAlgorithm uint16

// Algorithms.
const (
	ModuloN MultipathAlgorithm = iota
	HashThreshold
	HRW
	IterHash
)

var algorithmNames = []string{"modulo_n", "hash_threshold", "hrw", "iter_hash"}

// nameOf returns names[i], or <unknown>.
func nameOf[T ~uint8 | ~uint16 | ~uint32](names []string, i T) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "<unknown>"
}

func (a MultipathAction) String() string {
	return fmt.Sprintf("multipath(%s,%d,%s,%d,%d,%s)", nameOf(hashFieldsNames, a.Fields), a.Basis,
		nameOf(algorithmNames, a.Algorithm), a.Links, a.Arg, a.Dest)
}

func (a MultipathAction) appendTo(b []byte) []byte {
	start := len(b)
	b = be.AppendUint16(nxAction(b, nxMultipath), uint16(a.Fields))
	b = be.AppendUint16(b, a.Basis)
	b = append(b, 0, 0)
	b = be.AppendUint16(b, uint16(a.Algorithm))
	b = be.AppendUint16(b, a.Links-1)
	b = be.AppendUint32(b, a.Arg)
	b = append(b, 0, 0)
	b = be.AppendUint16(b, a.Dest.ofsBits())
	return endAction(a.Dest.appendHeader(b), start)
}
