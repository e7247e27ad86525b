// SPDX-License-Identifier: Apache-2.0

package policystream

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// logged hands messages of the log to a test.
type logged struct{ messages chan string }

func newLog() *logged { return &logged{make(chan string, 1000)} }

func (*logged) Enabled(context.Context, slog.Level) bool { return true }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	select {
	case l.messages <- r.Message:
	default:
	}
	return nil
}

func (l *logged) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *logged) WithGroup(string) slog.Handler      { return l }

// forget has await wait for messages from now on.
func (l *logged) forget() {
	for {
		select {
		case <-l.messages:
		default:
			return
		}
	}
}

// await waits for a message that contains text.
func (l *logged) await(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case m := <-l.messages:
			if len(m) >= len(text) && m[:len(text)] == text {
				return
			}
		case <-timeout:
			t.Fatalf("nothing that begins with %q was logged", text)
		}
	}
}
