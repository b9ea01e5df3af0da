// Package crash kills a real job at random moments, again and again, and
// checks what its outputs hold in the end against what was acknowledged. Package
// crashjob has the job, and says what is checked.
package crash
