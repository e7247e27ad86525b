// SPDX-License-Identifier: Apache-2.0

// Package trigger coalesces notifications: any number of Fire calls before the receiver
// runs wake it once.
package trigger

// Trigger holds one element while a notification is pending. The receiver reads the
// channel. New makes it.
type Trigger chan struct{}

// New returns a Trigger without a pending notification.
func New() Trigger { return make(Trigger, 1) }

// Fire makes a notification pending. It never blocks.
func (t Trigger) Fire() {
	select {
	case t <- struct{}{}:
	default:
	}
}

// Pending reports whether there is a notification that the receiver has not taken.
func (t Trigger) Pending() bool { return len(t) > 0 }
