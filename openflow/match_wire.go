// SPDX-License-Identifier: Apache-2.0

package openflow

import "fmt"

// decodeMatch reads the OXMs of a match, without its header and padding.
func decodeMatch(b []byte) (Match, error) {
	if isCanonical(b) {
		return Match{string(b)}, nil
	}
	var build matchBuilder
	for len(b) > 0 {
		v, rest, err := parseOXM(b)
		if err != nil {
			return Match{}, fmt.Errorf("match: %w", err)
		}
		build.addParsed(&v)
		b = rest
	}
	return build.match(), nil
}

// isCanonical reports whether b is what matchBuilder would make of it, as is most of what Open
// vSwitch sends. When in doubt it says no.
func isCanonical(b []byte) bool {
	last := fieldNone
	for len(b) > 0 {
		v, rest, err := parseOXM(b)
		if err != nil || v.field <= last || !v.isCanonical() {
			return false
		}
		last, b = v.field, rest
	}
	return true
}

func (v *FieldValue) isCanonical() bool {
	f := v.field
	switch {
	case f >= FieldReg0 && f <= FieldReg15, f >= FieldXXReg0 && f <= FieldXXReg3, f.isTunMetadata(),
		f == FieldInPort16, f == FieldIPTOS, f == FieldVLANTCI, f == FieldPacketType:
		return false
	case v.masked && (v.mask.isZero() || v.mask == ones(v.width())):
		return false
	}
	return v.fits()
}

// pullMatch reads an ofp_match with header and padding at the start of b.
func pullMatch(b []byte) (m Match, rest []byte, err error) {
	if len(b) < 4 {
		return m, nil, fmt.Errorf("match: %w", errShort)
	}
	typ, length := be.Uint16(b), int(be.Uint16(b[2:]))
	if typ != 1 {
		return m, nil, fmt.Errorf("match of type %d, not OXM", typ)
	}
	if length < 4 || len(b) < pad8(length) {
		return m, nil, fmt.Errorf("match: %w", errShort)
	}
	m, err = decodeMatch(b[4:length])
	return m, b[pad8(length):], err
}

// appendTo appends m as an ofp_match with header and padding.
func (m Match) appendTo(b []byte) []byte {
	n := 4 + len(m.oxm)
	b = append(b, 0, 1, byte(n>>8), byte(n))
	b = append(b, m.oxm...)
	return appendZeros(b, pad8(n)-n)
}
