/* What root makes in a folder that is another user's belongs to that user: else the service, which runs as that user,
 * could not open what a command made that root ran. */
#ifndef UNSEEN_BASE_OWNER_H
#define UNSEEN_BASE_OWNER_H

/* Gives what root owns at `path`, a file with one name, a socket or a folder, to the owner of the folder in which it
 * stands, or of `like`. No link is followed. Nothing is done where the process isn't root's, or the owner is root. What
 * the file system refuses is logged: the file serves this process all the same. */
void owner_as_folder(const char *path);
void owner_as(const char *path, const char *like);

#endif
