// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"errors"
	"fmt"
)

// append appends the id as an OXM header with the given length of payload.
func (id oxmID) append(b []byte, hasMask bool, length int) []byte {
	num := id.num << 1
	if hasMask {
		num |= 1
	}
	if id.class == classExp {
		b = append(b, byte(id.class>>8), byte(id.class), num, byte(length+4))
		return be.AppendUint32(b, id.exp)
	}
	return append(b, byte(id.class>>8), byte(id.class), num, byte(length))
}

// appendOXM appends a field's header, value and mask.
func appendOXM(b []byte, v *FieldValue) []byte {
	size := v.wireSize()
	n := size
	if v.masked {
		n *= 2
	}
	b = v.field.info().id.append(b, v.masked, n)
	if v.long != "" {
		return append(b, v.long...)
	}
	b = appendUint(b, v.value, size)
	if v.masked {
		b = appendUint(b, v.mask, size)
	}
	return b
}

// wireSize is the length of the value in bytes.
func (v *FieldValue) wireSize() int {
	if v.field.isTunMetadata() {
		return int(v.size)
	}
	return v.field.info().size()
}

// oxmHeader is a parsed OXM header.
type oxmHeader struct {
	id      oxmID
	field   Field // fieldNone if unknown
	hasMask bool
	length  int // of value and mask
	size    int // of the header with the experimenter
}

// parseOXMHeader reads the header at the start of b. It does not look at the payload.
func parseOXMHeader[T string | []byte](b T) (h oxmHeader, err error) {
	if len(b) < 4 {
		return h, errShort
	}
	h.id.class = uint16(b[0])<<8 | uint16(b[1])
	h.id.num, h.hasMask = b[2]>>1, b[2]&1 != 0
	h.length, h.size = int(b[3]), 4
	if h.id.class == classExp {
		if len(b) < 8 {
			return h, errShort
		}
		if h.length < 4 {
			return h, errors.New("experimenter OXM without experimenter")
		}
		h.id.exp = uint32(b[4])<<24 | uint32(b[5])<<16 | uint32(b[6])<<8 | uint32(b[7])
		h.length, h.size = h.length-4, 8
	}
	h.field = h.id.field()
	return h, nil
}

// parseOXM reads the OXM at the start of b and returns what follows it. The field of an OXM
// that this package does not know is fieldNone, its long the whole OXM.
func parseOXM[T string | []byte](b T) (v FieldValue, rest T, err error) {
	h, err := parseOXMHeader(b)
	if err != nil {
		return v, rest, err
	}
	total := h.size + h.length
	if len(b) < total {
		return v, rest, errShort
	}
	payload, rest := b[h.size:total], b[total:]
	if h.field == fieldNone {
		return FieldValue{long: string(b[:total])}, rest, nil
	}
	v = FieldValue{field: h.field, masked: h.hasMask}
	size := h.length
	if h.hasMask {
		size /= 2
	}
	if h.field.isTunMetadata() {
		if size > maxTunMetadata || h.hasMask && h.length%2 != 0 {
			return v, rest, fmt.Errorf("%s of %d bytes", h.field, h.length)
		}
		v.size = uint8(size)
		if size > 16 {
			v.long = string(payload)
			return v, rest, nil
		}
	} else if want := h.field.info().size(); size != want || h.hasMask && h.length != 2*want {
		return v, rest, fmt.Errorf("%s with %d bytes, not %d", h.field, h.length, want)
	}
	v.value = uintOf(payload[:size])
	if h.hasMask {
		v.mask = uintOf(payload[size:])
	}
	return v, rest, nil
}

// fieldsByID finds fields by class and number.
var fieldsByID = func() map[oxmID]Field {
	m := make(map[oxmID]Field, 2*int(numFields))
	for f := fieldNone + 1; f < numFields; f++ {
		info := f.info()
		m[info.id] = f
		m[info.nxmID] = f
	}
	return m
}()

// fieldsByNum is fieldsByID for the classes that matter, by number.
var fieldsByNum = func() (t [4][128]Field) {
	for id, f := range fieldsByID {
		if i := id.classIndex(); i >= 0 {
			t[i][id.num] = f
		}
	}
	return t
}()

func (id oxmID) classIndex() int {
	switch id.class {
	case classNXM0:
		return 0
	case classNXM1:
		return 1
	case classBasic:
		return 2
	case classPktReg:
		return 3
	}
	return -1
}

// field returns the field with the id, or fieldNone.
func (id oxmID) field() Field {
	if i := id.classIndex(); i >= 0 {
		return fieldsByNum[i][id.num]
	}
	return fieldsByID[id]
}
