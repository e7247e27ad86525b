// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// FirstSkippable is the lowest number of a field, in an Item and all messages in it, that a release
// may ignore if it does not know it. A field of a lower number may restrict what the item allows: a
// release that does not know it closes what the item is about.
const FirstSkippable protowire.Number = 1000

// newerReleaseError is about something that a newer release may have meant.
type newerReleaseError string

func (e newerReleaseError) Error() string { return string(e) }

// unknown reports fields that this release neither knows nor may skip.
func unknown(m proto.Message) error {
	for b := m.ProtoReflect().GetUnknown(); len(b) > 0; {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return protowire.ParseError(n) // not reached: Unmarshal has read it
		}
		if number < FirstSkippable {
			return newerReleaseError(fmt.Sprintf("field %d is not known", number))
		}
		b = b[n:]
	}
	return nil
}

// option reports values of an enumeration other than 1 to last.
func option(field string, v, last uint32) error {
	if v > last {
		return newerReleaseError(fmt.Sprintf("%s %d is not known", field, v))
	}
	return within(field, v, 1, last)
}

// IsFromNewerRelease reports whether all that is wrong is something that a newer release may have
// meant.
func IsFromNewerRelease(err error) bool {
	switch e := err.(type) { //nolint:errorlint // the tree that errors.Join makes is walked
	case nil:
		return false
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			if !IsFromNewerRelease(part) {
				return false
			}
		}
		return true
	case newerReleaseError:
		return true
	}
	return IsFromNewerRelease(errors.Unwrap(err))
}
