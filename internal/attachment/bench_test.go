// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"path/filepath"
	"testing"
)

// BenchmarkAllocate is the commit that every CNI ADD waits for, on the disk of the
// temporary directory, beside 450 pods that are there already.
func BenchmarkAllocate(b *testing.B) {
	for _, parallel := range []int{1, 8} {
		b.Run(fmt.Sprintf("parallel=%d", parallel), func(b *testing.B) {
			s := openTest(b, filepath.Join(b.TempDir(), "state.db"))
			for i := range 450 {
				mustAllocate(b, s, fmt.Sprintf("there-%d", i))
			}
			b.SetParallelism(parallel / 2) // times GOMAXPROCS, which is 2 where this was measured
			var n counter
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					id := fmt.Sprintf("c%d", n.next())
					a, err := s.Allocate(request(id))
					if err != nil {
						b.Error(err)
						return
					}
					if _, err := s.Release(a.Key); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
