// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress reports steps, one line each, with the seconds that each took.
type Progress struct {
	mu sync.Mutex
	w  io.Writer
}

// Step runs and reports one step. Its name is there before it is over, so that a long one can be
// told from a hang.
func (p *Progress) Step(name string, run func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "  %-44s", name)
	began := time.Now()
	err := run()
	outcome := ""
	if err != nil {
		outcome = "  failed"
	}
	fmt.Fprintf(p.w, "%6.1f s%s\n", time.Since(began).Seconds(), outcome)
	return err
}
