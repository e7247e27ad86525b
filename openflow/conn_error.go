// SPDX-License-Identifier: Apache-2.0

package openflow

import "fmt"

// MessageError says which of several messages a switch refused.
type MessageError struct {
	Index   int // of the message in what was sent
	Message Message
	Err     *Error
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("openflow: message %d refused: %v", e.Index, e.Err)
}

func (e *MessageError) Unwrap() error { return e.Err }
