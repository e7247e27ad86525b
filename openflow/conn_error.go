// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"errors"
	"fmt"
)

// MessageError says which of several messages a switch refused, or could not be
// sent to it.
type MessageError struct {
	Index   int // of the message among those to send
	Message Message
	Err     error // *Error if the switch refused it
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("openflow: message %d refused: %v", e.Index, e.Err)
}

func (e *MessageError) Unwrap() error { return e.Err }

// joinRefusals is the error of a call of which several messages were refused.
func joinRefusals(list []error) error {
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	return &refusals{list}
}

type refusals struct{ list []error }

func (r *refusals) Error() string {
	return fmt.Sprintf("%v (and %d more messages)", r.list[0], len(r.list)-1)
}

func (r *refusals) Unwrap() []error { return r.list }

// Refusals lists the messages that the error of Bundle or Do is about, in the order in which the
// switch refused them; none if the error is about the call as a whole.
func Refusals(err error) (list []*MessageError) {
	switch e := err.(type) { //nolint:errorlint // it unwraps by itself, to list all of them
	case nil:
	case *MessageError:
		return []*MessageError{e}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			list = append(list, Refusals(inner)...)
		}
	default:
		return Refusals(errors.Unwrap(err))
	}
	return list
}
